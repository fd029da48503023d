"""One run of an experiment by its place in the table: where it lies, and what it came to."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fastweights.core.errors import require
from fastweights.core.metric import Metric
from fastweights.experiments.experiment import Experiment, Trial
from fastweights.experiments.reuse import anywhere
from fastweights.training.run_folder.result import Result
from fastweights.training.run_folder.run import Run
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

    def run(self, folder: Path) -> Run:
        """Hardware it lies."""
        return Run(folder / self.experiment / self.preset / self.model / self.column / f"seed-{self.seed}")

    def trial(self, experiment: Experiment, where: Hardware = ANYWHERE) -> Trial:
        """What to train, and where."""
        trial = experiment.trial(self.model, self.column, self.preset)
        held_out = {experiment.fold: self.seed - 1} if experiment.fold else {}
        return trial._replace(
            task_options={**trial.task_options, **held_out},
            training=replace(trial.training, seed=self.seed, **where.given()),
        )

    def facts(self, trial: Trial) -> dict[str, Any]:
        """What a run folder says of it."""
        facts: dict[str, Any] = json.loads(json.dumps({**asdict(self), "trial": trial.facts()}))
        return facts


def outcome(run: Run, metric: Metric) -> Result | None:
    """None if the run has not come to its end, or anything is damaged: then it is looked at again, and told of."""
    try:
        run.config()
        result = run.result()
        return result if result and metric.name in result.test else None
    except (ValueError, OSError):
        return None


def require_same(run: Run, job: Job, trial: Trial) -> None:
    """`InputError` unless a run was begun with the library's settings of today, wherever that was."""
    stored, config = (anywhere(facts) for facts in (run.config()["config"], job.facts(trial)))
    changed = sorted(key for key in stored | config if stored.get(key) != config.get(key))
    remedy = "Name another --folder, or move the run away."
    require(not changed, f"run in {run.path}", "one with the same settings", f"another {', '.join(changed)}", remedy)
