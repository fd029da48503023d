"""A job: one run of an experiment, by its place in the table, with its run folder and its result."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fastweights.core.errors import require
from fastweights.experiments.experiment import Experiment, Trial
from fastweights.experiments.reuse import without_hardware
from fastweights.training.run_folder.finished_run import FinishedRun
from fastweights.training.run_folder.result import Result
from fastweights.training.run_folder.run import Run
from fastweights.training.run_folder.runs_file import packed_runs
from fastweights.training.settings._training import Hardware

ANYWHERE = Hardware()


@dataclass(frozen=True)
class Job:
    """One model in one column under one preset, with one seed."""

    experiment: str
    preset: str
    model: str
    column: str
    seed: int

    def preset_folder(self, folder: Path) -> Path:
        """The folder of its experiment and preset."""
        return folder / self.experiment / self.preset

    def run(self, folder: Path) -> Run:
        """The run folder."""
        return Run(self.preset_folder(folder) / self.model / self.column / f"seed-{self.seed}")

    def trial(self, experiment: Experiment, where: Hardware = ANYWHERE) -> Trial:
        """The trial of the job, with the hardware settings `where`."""
        trial = experiment.trial(self.model, self.column, self.preset)
        held_out = {experiment.fold: self.seed - 1} if experiment.fold else {}
        return trial._replace(
            task_options={**trial.task_options, **held_out},
            training=replace(trial.training, seed=self.seed, **where.specified()),
        )

    def facts(self, trial: Trial) -> dict[str, Any]:
        """The configuration of the run, for `config.json`."""
        facts: dict[str, Any] = json.loads(json.dumps({**asdict(self), "trial": trial.facts()}))
        return facts


class Outcome(NamedTuple):
    """The result of a job, and its number in the table."""

    result: Result
    value: float


def outcome(job: Job, folder: Path, experiment: Experiment) -> Outcome | None:
    """The outcome of a job, from its run folder or from the file of runs of its experiment and preset.

    None if there is no result, or if the run folder is damaged, which training reports.

    Raises:
        InputError: The file of runs is damaged.
    """
    run = job.run(folder)
    packed = packed_runs(job.preset_folder(folder)).get(run.path)
    return _outcome(run, experiment) or (_outcome(packed, experiment) if packed else None)


def _outcome(run: FinishedRun, experiment: Experiment) -> Outcome | None:
    with suppress(ValueError, OSError, KeyError):
        metric, result = experiment.metric_of(run.config()), run.result()
        return Outcome(result, result.value(metric)) if result else None
    return None


def require_same(run: Run, job: Job, trial: Trial) -> None:
    """`InputError` unless a run has the current settings of its trial, except for the hardware."""
    stored, config = (without_hardware(facts) for facts in (run.config()["config"], job.facts(trial)))
    changed = sorted(key for key in stored | config if stored.get(key) != config.get(key))
    remedy = "Name another --folder, or move the run away."
    require(
        not changed,
        f"run in {run.path}",
        "a run with the same settings",
        f"other values of {', '.join(changed)}",
        remedy,
    )
