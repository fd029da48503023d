"""An experiment of a paper as data: models, columns, settings by preset, published numbers, and claims.

It does not import torch, since the command line and the report import it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from itertools import product
from statistics import fmean, stdev
from typing import Any, NamedTuple

from fastweights.core.errors import InputError, require, require_name
from fastweights.core.measurements import Key
from fastweights.core.metric import Display, Metric
from fastweights.experiments.claim import Claim
from fastweights.training.settings._training import Training

SANITY = "sanity"
"""The preset of a sanity check."""

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
        module_name, name = written["settings"]
        kind = getattr(import_module(module_name), name)
        require(issubclass(kind, Training), "settings", "a subclass of Training", f"{module_name}.{name}")
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


@dataclass(frozen=True, kw_only=True)
class Sanity:
    """A short and easy version of preset cpu, in which every model must reach a bound.

    A model that stays below its bound is held back by the settings of preset cpu: a size, a learning rate, its input.
    The preset `sanity` is preset cpu with the changes given here, one seed per model.

    Args:
        bound: The value that a model must reach, in the units of the table.
        own: Bounds by model, for models with another ceiling.
        columns: The columns that run.
        models: The models that run; all models of preset cpu if empty.
        task: Options of the task that differ from preset cpu.
        model: Options of the model that differ.
        training: Settings of training that differ.
        sizes: Sizes that the models of preset cpu share with the paper's: "head", the size of a head, and "features",
            the number of features per head.
    """

    bound: float
    own: Mapping[str, float] = field(default_factory=dict)
    columns: tuple[str, ...]
    models: tuple[str, ...] = ()
    task: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def preset(self, cpu: Preset) -> Preset:
        """The models and columns that run."""
        models = self.models or cpu.models
        skip = cpu.skip & set(product(models, self.columns))
        return Preset(self.columns, models, skip=skip)

    def trial(self, cpu: Trial) -> Trial:
        """A trial of preset cpu with the changes."""
        return cpu._replace(
            task_options={**cpu.task_options, **self.task},
            model_options={**cpu.model_options, **self.model},
            training=replace(cpu.training, **self.training),
        )


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
Details = Mapping[tuple[str, Key], Summary]
"""Summaries by model and by the key of a detail."""


class CurveFigure(NamedTuple):
    """A figure of a number over the time steps of a sequence.

    Args:
        title: Title of the figure.
        across: Label of the horizontal axis.
        switch: Relative position, from 0 to 1, of a change in the sequence; None without one.
        up: Label of a number other than the main metric, which is drawn as measured; empty for the main metric.
    """

    title: str
    across: str
    switch: float | None = None
    up: str = ""


class PairMap(NamedTuple):
    """A heat map of models that are pairs of choices.

    Args:
        rows: Title of the rows, and their labels.
        columns: Title of the columns, and their labels.
        model: The model of a row and a column.
        lines: The pairs that also have a line in charts, which would be unreadable with all of them.
    """

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
        display: Label, form and data of its numbers, which are the main metric of its tasks.
        models: Labels of the rows by name.
        columns: Labels of the columns by name.
        published: Numbers of the paper, by model and column.
        presets: Presets by name: "smoke" (seconds, a test), "cpu" (reduced, for two cores) and, if the paper has
            numbers, "paper" (settings of the paper).
        trial: The training of a model in a column under a preset; the seed is filled in later.
        claims: Sentences that the report tests: those of the paper, and ours.
        notes: Remarks on the paper's numbers and on ours.
        axis: Label of the axis if the columns are numbers: then the report plots over them.
        logarithmic: Whether the vertical axis of figures is logarithmic, as in the paper.
        details: Labels of other numbers, by the name of a metric on test data, by `Detail`, or by `OnValidation`. They
            have a separate table and the form of the main metric.
        plain: Keys of details that are shown as measured, without the form of the metric.
        published_details: The paper's numbers, by model and by the key of the detail.
        pairs: Heat maps of all columns and details, if models are pairs of choices.
        curve_figures: Figures of curves over test data, by the name of the curve.
        improvement: Two models: bars show the relative improvement of the first over the second per column.
        fold: Option of the task with the number of the fold that is held out, if every seed holds out another.
        best: Whether the table names the best seed in addition to the mean, as the figures of some papers do.
        sanity: The check that preset cpu holds back no model, or the reason why there is none.
    """

    title: str
    source: str
    display: Display
    models: Mapping[str, str]
    columns: Mapping[str, str]
    published: Mapping[tuple[str, str], Published]
    presets: Mapping[str, Preset]
    trial: Callable[[str, str, str], Trial]
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    axis: str = ""
    logarithmic: bool = False
    details: Mapping[Any, str] = field(default_factory=dict)
    plain: Collection[Key] = ()
    published_details: Mapping[tuple[str, Any], Published] = field(default_factory=dict)
    curve_figures: Mapping[str, CurveFigure] = field(default_factory=dict)
    pairs: PairMap | None = None
    improvement: tuple[str, str] | None = None
    fold: str = ""
    best: bool = False
    sanity: Sanity | str = ""

    def __post_init__(self) -> None:
        if isinstance(self.sanity, Sanity):
            eased = _eased(self.trial, self.sanity)
            object.__setattr__(self, "presets", {**self.presets, SANITY: self.sanity.preset(self.presets["cpu"])})
            object.__setattr__(self, "trial", eased)

    def metric_of(self, config: Mapping[str, Any]) -> Metric:
        """The metric of a run, which its `config.json` names, with the display of the table."""
        return Metric.read(config.get("metric")).shown(self.display)

    def preset(self, name: str) -> Preset:
        """A preset by name."""
        require_name("preset", name, self.presets)
        return self.presets[name]


def _eased(trial: Callable[[str, str, str], Trial], sanity: Sanity) -> Callable[[str, str, str], Trial]:
    def eased(model: str, column: str, preset: str) -> Trial:
        return sanity.trial(trial(model, column, "cpu")) if preset == SANITY else trial(model, column, preset)

    return eased


def own_data(title: str, display: Display) -> Experiment:
    """The table of runs on data of the user: rows are runs with flags, and there is nothing to reproduce.

    Args:
        title: Title of the table.
        display: Label, form and data of the main metric of the task.
    """
    nothing: dict[str, Any] = {"models": {}, "published": {}, "presets": {}}
    return Experiment(
        title=title,
        source="Data of the user",
        display=display,
        columns={"data": "your data"},
        trial=_no_trial,
        **nothing,
    )


def _no_trial(model: str, column: str, preset: str) -> Trial:
    raise InputError(f"preset must be 'flags' for data of the user, got '{preset}'.")


def table(columns: tuple[Any, ...], rows: Mapping[str, tuple[Any, ...]]) -> dict[tuple[str, Any], Published]:
    """Numbers of the paper as printed, by model and by column or `Detail`.

    A row is a model. An entry is a number, a pair of a number and its deviation, or None.

    >>> table(("3", "5"), {"lstm": ((99.0, 0.1), None)})
    {('lstm', '3'): Published(value=99.0, deviation=0.1, at_most=False)}
    """
    numbers: dict[tuple[str, Any], Published] = {}
    for model, row in rows.items():
        for column, entry in zip(columns, row, strict=True):
            if entry is not None:
                parts = entry if isinstance(entry, tuple) else (entry,)
                numbers[model, column] = Published(*parts)
    return numbers
