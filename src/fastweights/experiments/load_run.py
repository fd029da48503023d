"""Models and trials from run folders. An untrusted folder only names parts, which the library then looks up."""

from contextlib import suppress
from typing import Any

from torch import nn

from fastweights.core.errors import require, require_name
from fastweights.experiments.experiment import Experiment, Trial
from fastweights.experiments.flags import flags_of
from fastweights.experiments.job import Job, require_same
from fastweights.experiments.python_trial import read_trial
from fastweights.experiments.trial import build, make_task
from fastweights.experiments.trust import TrustedCode
from fastweights.registry import EXPERIMENTS
from fastweights.tasks import Task
from fastweights.training.run_folder.checkpoints import best_model
from fastweights.training.run_folder.run import Run
from fastweights.training.settings._training import PRECISIONS, Hardware


def load_run(run: Run, own: TrustedCode) -> tuple[nn.Module, Task]:
    """The model with its best validation weights, in evaluation mode, and its task, which may lack its data files."""
    trial = trial_of(run, own)
    task = make_task(trial.task, trial.task_options).restored_from(run.task())
    return best_model(run, lambda: build(trial, task)), task


def trial_of(run: Run, own: TrustedCode) -> Trial:
    """The trial of a run: from the flags of a recipe, from its place in an experiment, or from Python.

    Args:
        run: Run folder.
        own: Custom code that the run needs, as named by the user.
    """
    content = run.config()
    if "flags" in content["config"]:
        trial: Trial = flags_of(content, run.path, own).trial()
        return trial
    if "experiment" not in content["config"]:
        return read_trial(content["config"].get("trial"), own, run.path)
    job = _job(content["config"], run)
    trial = job.trial(EXPERIMENTS.load(job.experiment), Hardware(precision=_precision(content["config"])))
    require_same(run, job, trial)
    return trial


def _precision(config: dict[str, Any]) -> str | None:
    """The precision of a run, the only setting of hardware that changes its numbers; None if it is invalid."""
    with suppress(KeyError, TypeError):
        precision = config["trial"]["training"]["precision"]
        return precision if precision in PRECISIONS else None
    return None


def _job(config: dict[str, Any], run: Run) -> Job:
    names = {part: str(config.get(part)) for part in ("experiment", "preset", "model", "column")}
    require_name(f"experiment in {run.path}", names["experiment"], EXPERIMENTS.names())
    experiment: Experiment = EXPERIMENTS.load(names["experiment"])
    known = {"preset": experiment.presets, "model": experiment.models, "column": experiment.columns}
    for part, values in known.items():
        require_name(f"{part} in {run.path}", names[part], values)
    seed = config.get("seed")
    require(type(seed) is int and seed >= 0, f"seed in {run.path}", "a whole number of at least 0", repr(seed))
    return Job(**names, seed=seed)  # type: ignore[arg-type]
