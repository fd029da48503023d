"""An experiment of a paper as data: models, columns, settings by preset, published numbers, and claims.

It does not import torch, since the command line and the report import it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import product
from statistics import fmean, stdev
from typing import Any, NamedTuple

from fastweights.core.errors import InputError, require, require_name
from fastweights.core.metric import Metric
from fastweights.experiments.claim import Claim
from fastweights.training.settings._training import Training

FREE = "flags"
"""Name in a run folder in place of a preset, for settings from flags."""


class Published(NamedTuple):
    """A number of a paper, with its standard deviation if it has one, or an upper bound if only that is published."""

    value: float
    deviation: float | None = None
    at_most: bool = False


class Trial(NamedTuple):
    """One training. Names are those of `fastweights list tasks` and of the files in `models/`. The type of the settings
    in `training`, which include the seed, selects the loop."""

    task: str
    task_options: dict[str, Any]
    model: str
    model_options: dict[str, Any]
    training: Training

    def facts(self) -> dict[str, Any]:
        """The trial as plain dictionaries."""
        return {**self._asdict(), "training": asdict(self.training)}

    def written(self) -> dict[str, Any]:
        """The trial as JSON for another process: its facts, and the type of the settings."""
        kind = type(self.training)
        return {**self.facts(), "settings": [kind.__module__, kind.__name__]}

    @classmethod
    def read(cls, written: dict[str, Any]) -> "Trial":
        """Restores a trial from `written()`, with tuples for lists."""
        home, name = written["settings"]
        kind = getattr(import_module(home), name)
        require(issubclass(kind, Training), "settings", "a kind of Training", f"{home}.{name}")
        facts = {part: _tupled(written[part]) for part in cls._fields}
        return cls(**{**facts, "training": kind(**facts["training"])})


def _tupled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tupled(part) for name, part in value.items()}
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


class Preset(NamedTuple):
    """The part of an experiment to run, and the number of seeds; `skip` are pairs of a model and a column."""

    columns: tuple[str, ...]
    models: tuple[str, ...]
    seeds: int = 1
    skip: frozenset[tuple[str, str]] = frozenset()

    @property
    def places(self) -> list[tuple[str, str]]:
        """Models and columns of the table that are run, column by column."""
        return [(m, c) for c in self.columns for m in self.models if (m, c) not in self.skip]


class Summary(NamedTuple):
    """Results of several seeds of one model in one column, in the units of the table."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds (of a sample); None for one seed."""
        return stdev(self.values) if len(self.values) > 1 else None


Results = Mapping[tuple[str, str], Summary]
"""Summaries by model and column."""


class Course(NamedTuple):
    """A chart of a metric over the steps of a sequence: its `title`, the axis label `across`, and the fraction of
    the steps after which the data `switch`."""

    title: str
    across: str
    switch: float


class PairMap(NamedTuple):
    """Models that are pairs of choices, as a map: titles and labels of its rows and columns, the model of a row and a
    column, and the pairs that also have a line in charts, which would be unreadable with all of them."""

    rows: tuple[str, Mapping[str, str]]
    columns: tuple[str, Mapping[str, str]]
    model: Callable[[str, str], str]
    lines: Collection[str]

    @property
    def models(self) -> dict[tuple[str, str], str]:
        """Models by row and column."""
        return {place: self.model(*place) for place in product(self.rows[1], self.columns[1])}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or a figure of a paper.

    Args:
        title: Title of one line.
        source: Publication and position in it.
        metric: The main metric of its tasks, in the form of the table.
        models: Labels of the rows by name.
        columns: Labels of the columns by name.
        published: Numbers of the paper, by model and column.
        presets: Presets by name: "smoke" (seconds, a test), "cpu" (reduced, for two cores) and, if the paper has
            numbers, "paper" (settings of the paper).
        trial: The training of a model in a column under a preset; the seed is filled in later.
        claims: Sentences that the report tests: those of the paper, and ours.
        notes: Remarks about the numbers of the paper or ours.
        axis: Label of the axis of the columns if they are numbers, over which the report plots.
        logarithmic: Whether the axis of the numbers is logarithmic in the paper's figure, and so in the report.
        details: Labels by name of further results on test data, in a separate table, in the form of the metric.
        published_details: Numbers of the paper, by model and name.
        pairs: Arrangement of the models in a map, for every column and every detail.
        courses: Charts by the prefix of the names of metrics on test data that end in the number of a step.
        fold: Option of the task with the index of the held-out part, if every seed holds out the next part.
    """

    title: str
    source: str
    metric: Metric
    models: Mapping[str, str]
    columns: Mapping[str, str]
    published: Mapping[tuple[str, str], Published]
    presets: Mapping[str, Preset]
    trial: Callable[[str, str, str], Trial]
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    axis: str = ""
    logarithmic: bool = False
    details: Mapping[str, str] = field(default_factory=dict)
    published_details: Mapping[tuple[str, str], Published] = field(default_factory=dict)
    courses: Mapping[str, Course] = field(default_factory=dict)
    pairs: PairMap | None = None
    fold: str = ""

    def preset(self, name: str) -> Preset:
        """A preset by name."""
        require_name("preset", name, self.presets)
        return self.presets[name]


def own_data(title: str, metric: Metric) -> Experiment:
    """The table of runs on data of the user: rows are runs with flags, and there is nothing to reproduce.

    Args:
        title: Title of the table.
        metric: Main metric of the task, as the table prints it.
    """
    nothing: dict[str, Any] = {"models": {}, "published": {}, "presets": {}}
    return Experiment(
        title=title, source="Data of the user", metric=metric, columns={"data": "your data"}, trial=_no_trial, **nothing
    )


def _no_trial(model: str, column: str, preset: str) -> Trial:
    raise InputError(f"preset must be 'flags' for data of the user, got '{preset}'.")


def table(columns: tuple[str, ...], rows: Mapping[str, tuple[Any, ...]]) -> dict[tuple[str, str], Published]:
    """Numbers of the paper as printed: one row per model; a number, a pair with its deviation, or None.

    >>> table(("3", "5"), {"lstm": ((99.0, 0.1), None)})
    {('lstm', '3'): Published(value=99.0, deviation=0.1, at_most=False)}
    """
    numbers: dict[tuple[str, str], Published] = {}
    for model, row in rows.items():
        for column, entry in zip(columns, row, strict=True):
            if entry is not None:
                parts = entry if isinstance(entry, tuple) else (entry,)
                numbers[model, column] = Published(*parts)
    return numbers
