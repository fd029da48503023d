"""The runs below a folder: finished runs by experiment and preset, and the reasons why others are skipped."""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import groupby, product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from fastweights.core.errors import InputError, require, require_name
from fastweights.core.files import read_file
from fastweights.core.measurements import Key
from fastweights.core.metric import Metric, still_improving
from fastweights.core.printable import printable
from fastweights.experiments.experiment import FREE, Details, Experiment, Results, Summary
from fastweights.registry import MODELS, RECIPES, TABLES, TASKS
from fastweights.training.run_folder.finished_run import FinishedRun
from fastweights.training.run_folder.result import METRICS, Result
from fastweights.training.run_folder.run import BEST, CONFIG, FAILURE, LAST, Run
from fastweights.training.run_folder.runs_file import RUNS, PackedRun, read_runs
from fastweights.training.settings._training import Training

PARTS = {"task": str, "model": str, "task_options": dict, "model_options": dict, "training": dict}
"""The entries of a trial, with their types."""


class Record(NamedTuple):
    """A finished run."""

    run: FinishedRun
    config: dict[str, Any]
    environment: dict[str, Any]
    result: Result
    metrics: list[dict[str, Any]]
    metric: Metric  # as in the table
    value: float  # in the units of the table
    cut_off: bool = False  # whether the maximum number of training steps ended it while validation still improved

    @property
    def path(self) -> Path:
        """Run folder; of a packed run, the folder that it was packed from."""
        return self.run.path

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """Experiment, preset, model, column and seed. Runs with equal keys are duplicates."""
        parts = ("experiment", "preset", "model", "column", "seed")
        experiment, preset, model, column, seed = (self.config[part] for part in parts)
        return experiment, preset, model, column, seed


class Skipped(NamedTuple):
    """A folder that is not counted, and the reason."""

    path: Path
    reason: str


class Group(NamedTuple):
    """The runs of one experiment under one preset."""

    name: str
    preset: str
    experiment: Experiment
    records: list[Record]

    @property
    def settings(self) -> type[Training]:
        """The class of the settings of training: the recipe itself if the runs come from flags."""
        if self.preset == FREE:
            recipe: type[Training] = RECIPES.load(self.name)
            return recipe
        name, preset = next(iter(self.experiment.presets.items()))
        return type(self.experiment.trial(*preset.places[0], name).training)

    @property
    def metric(self) -> Metric:
        """The metric of all runs, as in the table."""
        return self.records[0].metric

    def of(self, model: str, column: str) -> list[Record]:
        """The runs of a model in a column."""
        return [record for record in self.records if record.key[2:4] == (model, column)]

    @property
    def models(self) -> dict[str, str]:
        """The labels of the models that ran in any column."""
        ran = {record.key[2] for record in self.records}
        return {model: label for model, label in self.experiment.models.items() if model in ran}

    @property
    def weights(self) -> str:
        """The weights of the runs that were measured, in words."""
        choices = {record.config["trial"]["training"].get("keep", "best") for record in self.records}
        names = {"best": "the weights best on validation data", "last": "the last weights"}
        return " or ".join(names[choice] for choice in sorted(choices))

    @property
    def baselines(self) -> Results:
        """Baselines by name and column, in the units of the table: one number, or one number per fold."""
        values: dict[tuple[str, str], dict[int, float]] = {}
        for record in self.records:
            for name, measured in record.result.baselines.items():
                fold = record.key[4] if self.experiment.fold else 0
                values.setdefault((name, record.key[3]), {})[fold] = self.metric.value(measured)
        return {place: Summary(tuple(numbers.values())) for place, numbers in values.items()}

    @property
    def columns(self) -> dict[str, str]:
        """The labels of the columns in which any model ran."""
        ran = {record.key[3] for record in self.records}
        return {column: label for column, label in self.experiment.columns.items() if column in ran}

    @property
    def results(self) -> Results:
        """Means over seeds, by model and column."""
        values: dict[tuple[str, str], list[float]] = {}
        for record in self.records:
            values.setdefault(record.key[2:4], []).append(record.value)
        return {cell: Summary(tuple(seeds)) for cell, seeds in values.items()}

    def detail(self, name: Key, measured: float) -> float:
        """A detail in the units of its table."""
        return measured if name in self.experiment.plain else self.metric.value(measured)

    def measured(self, model: str, column: str, name: Key) -> Summary | None:
        """A metric or a detail over all seeds, in the units of its table; None if it was not measured."""
        numbers = [record.result.measured.get(name) for record in self.of(model, column)]
        values = tuple(self.detail(name, number) for number in numbers if number is not None)
        return Summary(values) if values else None

    def curve(self, model: str, column: str, name: str) -> list[tuple[float, float]]:
        """Means over seeds of a curve over test data, in the units of its figure; empty if it was not measured."""
        plain = bool(self.experiment.curve_figures[name].up)
        seeds: dict[float, list[float]] = {}
        for x, y in (point for record in self.of(model, column) for point in record.result.curves.get(name, ())):
            seeds.setdefault(x, []).append(y if plain else self.metric.value(y))
        return sorted((x, fmean(values)) for x, values in seeds.items())

    @property
    def details(self) -> Details:
        """The details of the experiment by model and name, from the first column in which they were measured."""
        details: dict[tuple[str, Key], Summary] = {}
        for column, model, name in product(self.columns, self.models, self.experiment.details):
            summary = self.measured(model, column, name)
            if summary is not None:
                details.setdefault((model, name), summary)
        return details


class Collection(NamedTuple):
    """All runs in a folder."""

    folder: Path
    groups: list[Group]
    skipped: list[Skipped]


def collect(folder: Path) -> Collection:
    """Reads all runs below a folder: run folders and files of runs. Damaged runs and duplicates are skipped.

    Raises:
        InputError: The folder does not exist, or has no runs.
    """
    require(folder.is_dir(), "folder", "a folder of 'fastweights reproduce'", f"'{folder}'")
    records: dict[Any, Record] = {}
    skipped, metrics = [], dict[tuple[str, str], Metric]()
    for run in _runs_below(folder):
        if isinstance(run, Skipped):
            skipped.append(run)
        elif run.metric != metrics.setdefault(run.key[:2], run.metric):
            reason = f"its metric {run.metric.name} is not that of other runs, or has another direction"
            skipped.append(Skipped(run.path, reason))
        elif run.key not in records:
            records[run.key] = run
        elif run.path != records[run.key].path:
            skipped.append(Skipped(run.path, f"the same run as {records[run.key].path}"))
    remedy = "Make some with 'fastweights reproduce'."
    require(bool(records or skipped), "folder", "a folder with runs", f"'{folder}'", remedy)
    return Collection(folder, list(_groups(records)), skipped)


def _runs_below(folder: Path) -> Iterator[Record | Skipped]:
    """All run folders, and then all packed runs, so that a run folder wins over the packed copy of itself."""
    names_of = {Path(path): set(names) for path, _, names in os.walk(folder)}
    files = {CONFIG, METRICS, LAST, BEST, FAILURE}
    for path in sorted(path for path, names in names_of.items() if files & names):
        yield _read(Run(path))
    for path in sorted(path / RUNS for path, names in names_of.items() if RUNS in names):
        try:
            yield from map(_read, read_runs(path))
        except (InputError, OSError) as error:
            yield Skipped(path, _damaged(error))


def _groups(records: dict[Any, Record]) -> Iterator[Group]:
    ordered = sorted(records.values(), key=lambda record: record.key)
    for (name, preset), records_of_group in groupby(ordered, key=lambda record: record.key[:2]):
        members = list(records_of_group)
        experiment = _experiment(name)
        if preset == FREE:
            # Every combination of flags is a row.
            rows = {record.key[2]: printable(record.key[2]) for record in members}
            experiment = replace(experiment, models=rows, claims=(), notes=())
        yield Group(name, preset, experiment, members)


def _read(run: Run | PackedRun) -> Record | Skipped:
    try:
        return _record(run)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        return Skipped(run.path, _damaged(error))


def _damaged(error: Exception) -> str:
    reason = f"no {error}" if isinstance(error, KeyError) else str(error)
    return f"damaged: {' '.join(reason.split())[:500]}"


def _record(run: Run | PackedRun) -> Record | Skipped:
    if isinstance(run, Run) and not run.exists() and (run.path / FAILURE).exists():
        return Skipped(run.path, _why_unfinished(run))
    content = run.config()
    config = content["config"]
    experiment = _experiment(str(content["recipe"]))
    require(config["experiment"] == content["recipe"], "experiment", "that of the recipe", repr(config["experiment"]))
    result = run.result()
    if result is None:
        return Skipped(run.path, _why_unfinished(Run(run.path)))
    _require_place(experiment, config)
    metrics, metric = run.metrics(), experiment.metric_of(content)
    _require_metrics(metrics, metric.name)
    improving = still_improving([metric.cost_at(line) for line in metrics])
    cut_off = result.stopped == "steps" and improving and not _anneals(config["trial"]["training"])
    return Record(run, config, content["environment"], result, metrics, metric, result.value(metric), cut_off)


@cache
def _experiment(name: str) -> Experiment:
    """An experiment, loaded once: thousands of runs share one, and every load reads the files of all experiments."""
    require_name("recipe", name, TABLES.names())
    experiment: Experiment = TABLES.load(name)
    return experiment


def _anneals(training: dict[str, Any]) -> bool:
    """Whether the learning rate is 0 at the last training step: then a longer run would need another schedule."""
    return training.get("min_lr_ratio") == 0 or bool(training.get("decay")) or training.get("anneal") == 1


def _require_place(experiment: Experiment, config: dict[str, Any]) -> None:
    """Raises `InputError`, `KeyError` or `TypeError` unless a run has a place in the table and a complete trial."""
    if config["preset"] == FREE:
        require_name("recipe", config["experiment"], RECIPES.names())
        known = isinstance(config["model"], str) and isinstance(config["flags"], dict)
    else:
        known = config["model"] in experiment.models and bool(experiment.preset(config["preset"]))
    known &= config["column"] in experiment.columns
    require(known, "run", "a run of an existing model and column", f"{config['model']!r} and {config['column']!r}")
    require(type(config["seed"]) is int, "seed", "a whole number", config["seed"])
    for part, kind in PARTS.items():
        require(isinstance(config["trial"][part], kind), part, f"a {kind.__name__}", "another")
    require_name("task", config["trial"]["task"], TASKS.names())
    require_name("model", config["trial"]["model"], MODELS.names())


def _require_metrics(metrics: list[dict[str, Any]], measured: str) -> None:
    """Raises `InputError`, `KeyError` or `TypeError` unless the metrics have all numbers of the curves."""
    require(bool(metrics), "metrics", "at least one evaluation", "none")
    for line in metrics:
        numbers = {"step": line["step"], "seconds": line["seconds"], measured: line["validation"][measured]}
        for name, number in numbers.items():
            require(type(number) in (int, float), name, "a number", repr(number))


def _why_unfinished(run: Run) -> str:
    # torch takes seconds to import, and finished runs do not need it.
    from fastweights.training.run_folder.checkpoints import last_checkpoint

    if (run.path / FAILURE).exists():
        failure = read_file(run.path / FAILURE, FAILURE, limit=1 << 16)
        return f"failed: {failure.decode(errors='replace')}"
    checkpoint = last_checkpoint(run)
    return (
        f"not finished: {checkpoint.facts['step']:,} training steps so far"
        if checkpoint
        else "not finished: no checkpoint"
    )
