"""Runs of other tables with the same settings and the same seed: what one table has trained, no other trains again."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastweights.core.errors import InputError
from fastweights.experiments.experiment import Trial
from fastweights.experiments.trial import require_same_data, shared_task
from fastweights.training.run_folder.run import RESULT, Run
from fastweights.training.settings._training import ANY_TIME, BEFORE


def twin_of(trial: Trial, folder: Path) -> Run | None:
    """A run of this trial, with the same files as data, that has come to its end anywhere under a folder."""
    wanted = json.loads(json.dumps(anywhere({"trial": trial.facts()})))["trial"]
    found = (Run(path.parent) for path in sorted(folder.rglob(f"seed-{trial.training.seed}/{RESULT}")))
    return next((run for run in found if _is(run, trial, wanted)), None)


def anywhere(facts: dict[str, Any]) -> dict[str, Any]:
    """A run's facts but for where it is trained. A run that is older than a setting has the value of before."""
    trial = facts.get("trial")
    if not isinstance(trial, dict) or not isinstance(training := trial.get("training"), dict):
        return facts
    before = BEFORE.items()
    what = {name: value for name, value in training.items() if name not in ANY_TIME and (name, value) not in before}
    return {**facts, "trial": {**trial, "training": what}}


def _is(run: Run, trial: Trial, wanted: dict[str, Any]) -> bool:
    """Whether an intact run is one of a trial; a damaged one is nobody's."""
    with suppress(InputError, OSError):
        if anywhere(run.config()["config"]).get("trial") == wanted and run.result() is not None:
            require_same_data(run, trial, shared_task(trial))
            return True
    return False
