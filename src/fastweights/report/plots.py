"""Learning curves, plots over the paper's axis, and bars of relative improvement."""

import re
from collections.abc import Callable
from typing import Any

from fastweights.experiments.experiment import PairMap, Summary
from fastweights.report.bars import Bars, draw_bars
from fastweights.report.chart import Chart, Line, draw
from fastweights.report.document import Figure
from fastweights.report.heat_map import HeatMap, draw_map
from fastweights.report.runs import Group, Record

AXES: dict[str, Callable[[dict[str, Any]], float]] = {
    "training steps": lambda line: line["step"],
    "minutes": lambda line: line["seconds"] / 60,
}
"""The horizontal axes of learning curves."""


def learning_curves(group: Group) -> list[Figure]:
    """Two figures per column: the metric on validation data over training steps and over minutes, one line per seed."""
    return [_learning_curve(group, column, axis) for column in group.columns for axis in AXES]


def curves_on_test_data(group: Group) -> list[Figure]:
    """One figure per column: the metric on test data over training steps, one line per seed, if it was measured."""
    records = [record for record in group.records if "test" in record.metrics[0]]
    runs_of = {column: [record for record in records if record.key[3] == column] for column in group.columns}
    return [_test_curve(group, column, runs) for column, runs in runs_of.items() if runs]


def _test_curve(group: Group, column: str, records: list[Record]) -> Figure:
    experiment = group.experiment
    metric, title = group.metric, experiment.columns[column]
    lines = [
        Line(experiment.models[record.key[2]], [(line["step"], metric.at(line, "test")) for line in record.metrics])
        for record in records
    ]
    chart = _chart(group, title, "training steps", metric.display.label, lines)
    return _figure(
        chart, f"{_slug(group)}-{column}-test", f"{title}, on test data, over training steps: one line per seed."
    )


def improvements(group: Group) -> list[Figure]:
    """Bars of the relative improvement of one model over another per column, if the experiment names the two."""
    experiment = group.experiment
    if not experiment.improvement:
        return []
    better, base = experiment.improvement
    scores = {
        label: (group.results[better, column].mean, group.results[base, column].mean)
        for column, label in group.columns.items()
        if {(better, column), (base, column)} <= group.results.keys()
    }
    values = {label: 100 * (a - b) / abs(b) for label, (a, b) in scores.items() if b}
    if not values:
        return []
    names = experiment.models[better], experiment.models[base]
    chart = Bars(f"{names[0]} over {names[1]}", "relative improvement, %", values)
    caption = f"Relative improvement of {names[0]} over {names[1]}: 100 (a - b) / |b| of the mean scores a and b."
    return [Figure(f"{_slug(group)}-improvement", caption, draw_bars(chart))]


def over_axis(group: Group) -> list[Figure]:
    """Our means, one dot per run, and the paper's numbers over the columns, if these are numbers on an axis."""
    experiment = group.experiment
    if not experiment.axis:
        return []
    lines = []
    for model, label in _drawn(group.models, group.experiment.pairs).items():
        results = {float(column): summary for (m, column), summary in group.results.items() if m == model}
        published = {float(c): number.value for (m, c), number in experiment.published.items() if m == model}
        means = sorted((column, summary.mean) for column, summary in results.items())
        runs = [(column, value) for column, summary in results.items() for value in summary.values]
        lines += [
            Line(label, means),
            Line(label, runs, dots=True),
            Line(label, sorted(published.items()), is_published=True),
        ]
    chart = _chart(group, "", experiment.axis, group.metric.display.label, lines)
    origin = "ours and the paper's" if experiment.published else "ours"
    caption = f"{experiment.title}: {origin}, over {experiment.axis}, one dot per run."
    return [_figure(chart, f"{_slug(group)}-axis", caption)]


def _drawn(models: dict[str, str], pairs: PairMap | None) -> dict[str, str]:
    """The labels of the models that have lines."""
    if pairs is None:
        return models
    mapped = set(pairs.models.values()).difference(pairs.lines)
    return {model: label for model, label in models.items() if model not in mapped}


def maps(group: Group) -> list[Figure]:
    """One heat map per column and per detail, if the models are pairs of choices."""
    experiment, pairs = group.experiment, group.experiment.pairs
    if pairs is None:
        return []
    summaries: dict[tuple[str, Any], Summary] = {**group.results, **group.details}
    figures = []
    for name, label in {**group.columns, **experiment.details}.items():
        values = {place: summaries[m, name].mean for place, m in pairs.models.items() if (m, name) in summaries}
        if values:
            chart = HeatMap(label, pairs.rows, pairs.columns, values, group.metric.best is min)
            measured = group.metric.display.label if name in group.columns else label
            caption = f"{measured[0].upper()}{measured[1:]}: means over seeds; darker is better."
            figures.append(Figure(f"{_slug(group)}-map-{_stem(str(name))}", caption, draw_map(chart)))
    return figures


def curve_figures(group: Group) -> list[Figure]:
    """One figure per curve over the time steps of sequences of test data, with one line per model."""
    experiment = group.experiment
    figures = []
    for name, (title, across, switch, up) in experiment.curve_figures.items():
        points = {model: _curve_over_steps(group, model, name) for model in group.models}
        lines = [Line(experiment.models[model], steps) for model, steps in points.items() if steps]
        if lines:
            at = None if switch is None else switch * len(lines[0].points)
            chart = _chart(group, title, across, up or group.metric.display.label, lines)._replace(switch=at)
            caption = f"{title}: means over seeds{'' if at is None else ', with a line where the images change'}."
            figures.append(_figure(chart, f"{_slug(group)}-{_stem(name)}", caption))
    return figures


def _curve_over_steps(group: Group, model: str, name: str) -> list[tuple[float, float]]:
    """The curve of a model in the first column where it was measured; empty if it was measured in none."""
    return next(filter(None, (group.curve(model, column, name) for column in group.columns)), [])


def _learning_curve(group: Group, column: str, axis: str) -> Figure:
    experiment = group.experiment
    lines = [
        Line(label, _curve(record, group, axis))
        for model, label in _drawn(group.models, group.experiment.pairs).items()
        for record in group.of(model, column)
    ]
    title = experiment.columns[column]
    measured = re.sub("^(best )?((test|validation) )?", "validation ", group.metric.display.label)
    chart = _chart(group, title, axis, measured, lines)
    return _figure(
        chart, f"{_slug(group)}-{column}-{axis.replace(' ', '-')}", f"{title}, over {axis}: one line per seed."
    )


def _chart(group: Group, title: str, across: str, up: str, lines: list[Line]) -> Chart:
    experiment = group.experiment
    errors = group.metric.best is min
    lines = [line for line in lines if line.points]
    names = list(_drawn(dict(experiment.models), experiment.pairs).values())
    return Chart(title, across, up, names, lines, errors, experiment.logarithmic)


def _curve(record: Record, group: Group, axis: str) -> list[tuple[float, float]]:
    metric = group.metric
    return sorted((AXES[axis](line), metric.at(line)) for line in record.metrics)


def _figure(chart: Chart, name: str, caption: str) -> Figure:
    return Figure(name, " ".join(filter(None, (caption, chart.remarks))), draw(chart))


def _stem(name: str) -> str:
    """A name as a part of a file name."""
    return re.sub("[_ ]", "-", name)


def _slug(group: Group) -> str:
    return f"{group.name}-{group.preset}".replace("/", "-")
