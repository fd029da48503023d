"""The sanity check of an experiment: the value that each model reached, and the bound that it must reach."""

from collections.abc import Iterator
from typing import NamedTuple

from fastweights.experiments.experiment import SANITY, Experiment, Sanity, Trial
from fastweights.registry import FEATURE_MAPS
from fastweights.report.document import Block, Grid, Heading, Paragraph
from fastweights.report.runs import Group, collect


class Check(NamedTuple):
    """One line of a sanity check."""

    subject: str
    reached: float | None
    bound: float
    passed: bool

    def __str__(self) -> str:
        reached = "not run" if self.reached is None else f"{self.reached:.4g}"
        return f"{'passed' if self.passed else 'FAILED'}: {self.subject}: {reached}, bound {self.bound:g}"


def checks(experiment: Experiment, group: Group | None) -> Iterator[Check]:
    """The checks of all models, from finished runs of preset sanity, and of the sizes of the models of preset cpu."""
    assert isinstance(experiment.sanity, Sanity)
    yield from _size_checks(experiment, experiment.sanity)
    results = group.results if group else {}
    for model, column in experiment.preset(SANITY).places:
        bound = experiment.sanity.own.get(model, experiment.sanity.bound)
        summary = results.get((model, column))
        reached = summary.mean if summary else None
        passed = group is not None and reached is not None and group.metric.best(reached, bound) == reached
        yield Check(f"{experiment.models[model]}, {experiment.columns[column]}", reached, bound, passed)


def _size_checks(experiment: Experiment, sanity: Sanity) -> Iterator[Check]:
    """The sizes that reduced models share with the paper's."""
    for model, column in experiment.preset("cpu").places:
        parameters = sizes(experiment.trial(model, column, "cpu"))
        for name, size in sanity.sizes.items():
            if name in parameters:
                subject = f"{experiment.models[model]}, {experiment.columns[column]}, {SIZES[name]}"
                yield Check(subject, parameters[name], size, parameters[name] == size)


SIZES = {"head": "size of a head", "features": "features per head"}
"""Labels of sizes."""


def sanity(group: Group) -> Iterator[Block]:
    """The results of the sanity check, or the reason why there is none."""
    if group.preset not in ("cpu", SANITY) or not group.experiment.sanity:
        return
    yield Heading(3, "Sanity check")
    if isinstance(group.experiment.sanity, str):
        yield Paragraph(group.experiment.sanity)
        return
    sanity_runs = _sanity_runs(group)
    yield Paragraph(
        "Each model learns a short, easy version of the task, with the other settings of preset cpu. A model that "
        f"misses its bound cannot learn with these settings. Command: `fastweights reproduce {group.name} --sanity`."
        f"{'' if sanity_runs else ' Not run yet.'}"
    )
    measured = [check for check in checks(group.experiment, sanity_runs) if check.reached is not None]
    if measured:
        yield Grid(["", "reached", "bound", ""], [[*_row(check)] for check in measured])


def _row(check: Check) -> tuple[str, str, str, str]:
    return check.subject, f"{check.reached:.4g}", f"{check.bound:g}", "passed" if check.passed else "failed"


def _sanity_runs(group: Group) -> Group | None:
    """The runs of preset sanity: their folder is next to that of preset cpu."""
    if group.preset == SANITY:
        return group
    folder = group.records[0].path.parents[3] / SANITY
    if not folder.is_dir():
        return None
    return next((other for other in collect(folder).groups if other.name == group.name), None)


def sizes(trial: Trial) -> dict[str, int]:
    """The size of a head, and the number of features per head if the options name a feature map.

    Empty for a model without heads.
    """
    options = trial.model_options
    if "num_heads" not in options:
        return {}
    head = options["d_model"] // options["num_heads"]
    name = options.get("options", {}).get("feature_map")
    return {"head": head, **({"features": _features(name, head)} if name else {})}


def _features(name: str, head: int) -> int:
    """The number of features of a map by name, whose trailing number is its one option."""
    stem, _, number = name.rpartition("-")
    made = FEATURE_MAPS.load(stem)(head, int(number)) if number.isdigit() else FEATURE_MAPS.load(name)(head)
    return int(made.output_size)
