"""One run of an experiment: what it is, where it lies, and how it is trained."""

import json
import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from fastweights.catalogue import EXPERIMENTS, MODELS, TASKS
from fastweights.errors import require, require_name
from fastweights.experiment import Experiment, Metric, Trial
from fastweights.tasks import Task
from fastweights.training.loop import load_best, make_fabric
from fastweights.training.run import FAILURE, Run
from fastweights.training.supervised import finish, train


@dataclass(frozen=True)
class Job:
    """One model in one column under one preset, with one seed."""

    experiment: str
    preset: str
    model: str
    column: str
    seed: int

    def run(self, folder: Path) -> Run:
        """Where it lies."""
        return Run(folder / self.experiment / self.preset / self.model / self.column / f"seed-{self.seed}")

    def trial(self, experiment: Experiment) -> Trial:
        """What to train."""
        trial = experiment.trial(self.model, self.column, self.preset)
        return trial._replace(training=replace(trial.training, seed=self.seed))


class Outcome(NamedTuple):
    """What a run came to: updates, seconds, and the number for the table."""

    steps: int
    seconds: float
    value: float


def outcome(run: Run, metric: Metric) -> Outcome | None:
    """None if the run has not come to its end, or anything is damaged: then it is looked at again, and told of."""
    try:
        run.config()
        result = run.result()
        if result is None:
            return None
        found = Outcome(int(result["steps"]), float(result["seconds"]), metric.of(result))
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
    return found if 0 <= found.steps < 1 << 53 and 0 <= found.seconds < math.inf else None


def carry_out(job: Job, experiment: Experiment, folder: Path) -> None:
    """Trains and measures, unless that is done; goes on with what is there.

    Raises:
        Busy: Another process is at it.
        InputError: The folder holds a run with other settings, or a damaged one.
    """
    run, trial = job.run(folder), job.trial(experiment)
    with run.lock():
        if outcome(run, experiment.metric) is not None:
            return
        (run.path / FAILURE).unlink(missing_ok=True)
        _begin(run, job, trial)
        task = _task(trial.task, json.dumps(trial.task_options))
        model = build(trial, task)
        fabric = make_fabric(trial.training)
        train(fabric, model, task, trial.training, run)
        finish(fabric, build(trial, task), task, trial.training, run)


def build(trial: Trial, task: Task) -> nn.Module:
    """The model, freshly initialised from the seed."""
    torch.manual_seed(trial.training.seed)
    kind = MODELS.load(trial.model)
    model: nn.Module = kind(task.input_kind, task.input_size, task.output_size, **trial.model_options)
    return model


def load_trial(run: Run, config: dict[str, Any]) -> tuple[nn.Module, Task]:
    """The trained model and its task; only names are taken from the folder, what they mean from the library."""
    names = {part: str(config.get(part)) for part in ("experiment", "preset", "model", "column")}
    require_name(f"experiment in {run.path}", names["experiment"], EXPERIMENTS.names())
    experiment: Experiment = EXPERIMENTS.load(names["experiment"])
    known = {"preset": experiment.presets, "model": experiment.models, "column": experiment.columns}
    for part, values in known.items():
        require_name(f"{part} in {run.path}", names[part], values)
    seed = config.get("seed")
    require(isinstance(seed, int) and seed >= 0, f"seed in {run.path}", "a whole number of at least 0", repr(seed))
    job = Job(**names, seed=seed)  # type: ignore[arg-type]
    trial = job.trial(experiment)
    _require_same(run, job, trial)
    task = _task(trial.task, json.dumps(trial.task_options))
    model = build(trial, task)
    load_best(run, model)
    return model, task


def _begin(run: Run, job: Job, trial: Trial) -> None:
    if not run.exists():
        run.begin(job.experiment, _facts(job, trial), {"name": trial.task, **trial.task_options})
    _require_same(run, job, trial)


def _facts(job: Job, trial: Trial) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(json.dumps({**asdict(job), "trial": trial.facts()}))
    return facts


def _require_same(run: Run, job: Job, trial: Trial) -> None:
    stored, config = run.config()["config"], _facts(job, trial)
    changed = sorted(key for key in stored | config if stored.get(key) != config.get(key))
    remedy = "Name another --folder, or move the run away."
    require(not changed, f"run in {run.path}", "one with the same settings", f"another {', '.join(changed)}", remedy)


@lru_cache(maxsize=1)
def _task(name: str, options: str) -> Task:
    """Data that take seconds to make are made once for all models."""
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in json.loads(options).items()}
    task: Task = TASKS.load(name)(**values)
    return task
