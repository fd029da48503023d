"""Learning curves and plots over the paper's axis, as SVG."""

import io
from collections.abc import Callable
from typing import Any

from fastweights.report.document import Figure
from fastweights.report.runs import Group, Record

SIZE = (5.0, 4.0)
"""Inches; small, so that letters can be read on a telephone."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7f7f7f", "#8c564b", "#17becf")
"""Told apart by most who see few colours; black and grey for what there are too many of."""


AXES: dict[str, Callable[[dict[str, Any]], float]] = {
    "updates": lambda line: line["step"],
    "minutes": lambda line: line["seconds"] / 60,
}
"""What a learning curve can be drawn over."""


def learning_curves(group: Group) -> list[Figure]:
    """Two pictures a column: the metric on validation data over updates and over minutes, a line a seed."""
    return [_learning_curve(group, column, axis) for column in group.columns for axis in AXES]


def over_axis(group: Group) -> list[Figure]:
    """Our means and the paper's numbers over the columns, where these are numbers on an axis."""
    experiment = group.experiment
    if not experiment.axis:
        return []
    figure, axes = _axes()
    for (model, label), colour in zip(experiment.models.items(), _colours(), strict=False):
        ours = {float(column): summary.mean for (m, column), summary in group.results.items() if m == model}
        theirs = {float(c): number.value for (m, c), number in experiment.published.items() if m == model}
        if ours:
            axes.plot(*_line(ours), color=colour, marker="o", markersize=4, label=label)
            axes.plot(*_line(theirs), color=colour, linestyle=":", marker="x", markersize=4, linewidth=1)
    axes.set(xlabel=experiment.axis, ylabel=experiment.metric.label)
    caption = f"{experiment.title}: ours (full lines) and the paper's (dotted, crosses)"
    return [_finish(figure, axes, f"{_slug(group)}-axis", caption)]


def _learning_curve(group: Group, column: str, axis: str) -> Figure:
    experiment = group.experiment
    figure, axes = _axes()
    for (model, label), colour in zip(experiment.models.items(), _colours(), strict=False):
        for n, record in enumerate(group.of(model, column)):
            line, name = _curve(record, group, axis), None if n else label
            # One point makes no line.
            axes.plot(*_line(line), color=colour, linewidth=1.2, marker="o" if len(line) == 1 else None, label=name)
    title = experiment.columns[column]
    metric = experiment.metric.label.removeprefix(f"{experiment.metric.data} ")
    axes.set(xlabel=axis, ylabel=f"validation {metric}", title=title)
    return _finish(figure, axes, f"{_slug(group)}-{column}-{axis}", f"{title}, over {axis}: a line a seed")


def _curve(record: Record, group: Group, axis: str) -> dict[float, float]:
    metric = group.experiment.metric
    return {AXES[axis](line): metric.value(line["validation"]) for line in record.metrics}


def _line(points: dict[float, float]) -> tuple[list[float], list[float]]:
    return sorted(points), [points[x] for x in sorted(points)]


def _colours() -> list[str]:
    return [*COLOURS, *COLOURS]


def _slug(group: Group) -> str:
    return f"{group.name}-{group.preset}".replace("/", "-")


def _axes() -> tuple[Any, Any]:
    # matplotlib takes a second to import, and only pictures need it.
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=SIZE, layout="constrained")
    return canvas, canvas.subplots()


def _finish(figure: Any, axes: Any, name: str, caption: str) -> Figure:
    import matplotlib

    axes.grid(alpha=0.3)
    axes.locator_params(axis="x", nbins=6)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    picture = io.BytesIO()
    # Without a date and with a fixed salt the same runs give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "fastweights"}):
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return Figure(name, caption, picture.getvalue())
