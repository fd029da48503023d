"""The runs in a folder, whatever state they are in."""

import json
import math
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from fastweights.catalogue import EXPERIMENTS
from fastweights.errors import require
from fastweights.experiment import Experiment, Results, Summary
from fastweights.files import read_file
from fastweights.training.run import BEST, CONFIG, FAILURE, LAST, METRICS, Run

PARTS = {"task": str, "model": str, "task_options": dict, "model_options": dict, "training": dict}
"""What a trial is told by."""


class Record(NamedTuple):
    """A run that came to its end."""

    path: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    value: float  # in the units of the table

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """Experiment, preset, model, column, seed: what makes two runs the same."""
        parts = ("experiment", "preset", "model", "column", "seed")
        experiment, preset, model, column, seed = (self.config[part] for part in parts)
        return experiment, preset, model, column, seed


class Skipped(NamedTuple):
    """A folder that gives no number, and why."""

    path: Path
    reason: str


class Group(NamedTuple):
    """The runs of one experiment under one preset."""

    name: str
    preset: str
    experiment: Experiment
    records: list[Record]

    def of(self, model: str, column: str) -> list[Record]:
        """The seeds of a model in a column."""
        return [record for record in self.records if record.key[2:4] == (model, column)]

    @property
    def models(self) -> dict[str, str]:
        """The labels of those that ran in any column."""
        ran = {record.key[2] for record in self.records}
        return {model: label for model, label in self.experiment.models.items() if model in ran}

    @property
    def columns(self) -> dict[str, str]:
        """The labels of those in which any model ran."""
        ran = {record.key[3] for record in self.records}
        return {column: label for column, label in self.experiment.columns.items() if column in ran}

    @property
    def results(self) -> Results:
        """Means over seeds, by model and column."""
        cells = {record.key[2:4]: self.of(*record.key[2:4]) for record in self.records}
        return {cell: Summary(tuple(r.value for r in records)) for cell, records in cells.items()}


class Collection(NamedTuple):
    """All runs in a folder."""

    groups: list[Group]
    skipped: list[Skipped]


def collect(folder: Path) -> Collection:
    """Reads all runs below a folder. What cannot be read, or is there twice, is listed and not counted.

    Raises:
        InputError: The folder is not there, or holds no run at all.
    """
    require(folder.is_dir(), "folder", "a folder of 'fastweights reproduce'", f"'{folder}'")
    records: dict[Any, Record] = {}
    skipped = []
    for path in _run_folders(folder):
        found = _read(path)
        if isinstance(found, Record) and found.key in records:
            found = Skipped(path, f"the same run as {records[found.key].path}")
        if isinstance(found, Skipped):
            skipped.append(found)
        else:
            records[found.key] = found
    remedy = "Make some with 'fastweights reproduce'."
    require(bool(records or skipped), "folder", "one with runs in it", f"'{folder}'", remedy)
    return Collection(list(_groups(records)), skipped)


def _run_folders(folder: Path) -> list[Path]:
    files = {CONFIG, METRICS, LAST, BEST}
    return sorted(Path(path) for path, _, names in os.walk(folder) if files.intersection(names))


def _groups(records: dict[Any, Record]) -> Iterator[Group]:
    ordered = sorted(records.values(), key=lambda record: record.key)
    for (name, preset), members in groupby(ordered, key=lambda record: record.key[:2]):
        yield Group(name, preset, EXPERIMENTS.load(name), list(members))


def _read(path: Path) -> Record | Skipped:
    try:
        return _record(Run(path))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        return Skipped(path, f"damaged: {' '.join(reason.split())[:500]}")


def _record(run: Run) -> Record | Skipped:
    content = run.config()
    if content["recipe"] not in EXPERIMENTS.names():
        return Skipped(run.path, f"a run of {content['recipe']}, which is no experiment of a paper")
    result = run.result()
    if result is None:
        return Skipped(run.path, _why_unfinished(run))
    config = content["config"]
    experiment = EXPERIMENTS.load(config["experiment"])
    known = config["model"] in experiment.models and config["column"] in experiment.columns
    require(known, "run", "of a model and a column that there are", json.dumps(config)[:80])
    value = experiment.metric.of(result)
    record = Record(run.path, config, content["environment"], result, run.metrics(), value)
    experiment.preset(config["preset"])
    _require_readable(record)
    return record


def _require_readable(record: Record) -> None:
    """Raises `InputError`, `KeyError` or `TypeError` unless all that a page shows is there, and of its kind."""
    require(type(record.key[4]) is int, "seed", "a whole number", record.key[4])
    require(bool(record.metrics), "metrics", "at least one evaluation", "none")
    for line in record.metrics:
        _numbers(line, "step", "seconds", "validation")
    numbers = _numbers(record.result, "steps", "step", "seconds", "parameters")
    require(all(map(math.isfinite, numbers)), "result", "of finite numbers", numbers)
    _numbers(record.result["test"], *record.result["test"])
    for part, kind in PARTS.items():
        require(isinstance(record.config["trial"][part], kind), part, f"of kind {kind.__name__}", "another")


def _numbers(record: dict[str, Any], *names: str) -> list[float]:
    for name in names:
        require(type(record[name]) in (int, float), name, "a number", repr(record[name]))
    return [float(record[name]) for name in names]


def _why_unfinished(run: Run) -> str:
    # torch takes seconds to import, and finished runs do not need it.
    from fastweights.training.loop import last_checkpoint

    if (run.path / FAILURE).exists():
        failure = read_file(run.path / FAILURE, FAILURE, limit=1 << 16)
        return f"failed: {failure.decode(errors='replace')}"
    checkpoint = last_checkpoint(run)
    return f"not finished: {checkpoint.facts['step']:,} updates so far" if checkpoint else "not finished: no checkpoint"
