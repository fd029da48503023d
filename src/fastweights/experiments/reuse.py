"""Reuse of finished runs of other tables that have the same settings and the same seed."""

import json
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from fastweights.core.errors import InputError
from fastweights.experiments.experiment import Trial
from fastweights.experiments.trial import require_same_data, shared_task
from fastweights.training.run_folder.finished_run import FinishedRun
from fastweights.training.run_folder.result import RESULT
from fastweights.training.run_folder.run import Run
from fastweights.training.run_folder.runs_file import RUNS, PackedRun, packed_runs
from fastweights.training.settings._training import ANY_TIME, BEFORE


def find_equal_run(trial: Trial, folder: Path) -> FinishedRun | None:
    """A finished run of the same trial and the same data files below a folder; None if there is none.

    Run folders come before packed runs.
    """
    expected = json.loads(json.dumps(without_hardware({"trial": trial.facts()})))["trial"]
    folders = (Run(path.parent) for path in sorted(folder.rglob(f"seed-{trial.training.seed}/{RESULT}")))
    packed = (run for path in sorted(folder.rglob(RUNS)) for run in _runs(path.parent))
    candidates: Iterable[FinishedRun] = chain(folders, packed)
    return next((run for run in candidates if _is(run, trial, expected)), None)


def _runs(folder: Path) -> Iterable[PackedRun]:
    """The runs in the file of a folder; none if the file is damaged."""
    with suppress(InputError, OSError):
        return packed_runs(folder).values()
    return ()


def without_hardware(facts: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a run without settings of hardware and without defaults that older runs do not have."""
    trial = facts.get("trial")
    if not isinstance(trial, dict) or not isinstance(training := trial.get("training"), dict):
        return facts
    before = BEFORE.items()
    settings = {name: value for name, value in training.items() if name not in ANY_TIME and (name, value) not in before}
    return {**facts, "trial": {**trial, "training": settings}}


def _is(run: FinishedRun, trial: Trial, expected: dict[str, Any]) -> bool:
    """Whether a run is finished, undamaged and of the trial."""
    with suppress(InputError, OSError):
        if without_hardware(run.config()["config"]).get("trial") == expected and run.result() is not None:
            require_same_data(run, trial, shared_task(trial))
            return True
    return False
