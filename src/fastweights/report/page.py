"""The report of runs: our numbers and the paper's, tested claims, curves, settings, hardware and time."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from statistics import median

from fastweights.core.files import make_own_folder, read_file, write_atomically
from fastweights.core.measurements import Key
from fastweights.core.metric import Metric
from fastweights.experiments.experiment import FREE, SANITY, Experiment, Summary
from fastweights.report.aggregates import aggregates
from fastweights.report.claims import claims, orders
from fastweights.report.document import Block, Bullets, Figure, Grid, Heading, Paragraph, to_html, to_markdown
from fastweights.report.episodes import episodes
from fastweights.report.numbers import format_published, format_summary, number
from fastweights.report.plots import curve_figures, curves_on_test_data, improvements, learning_curves, maps, over_axis
from fastweights.report.runs import Collection, Group, Record
from fastweights.report.sanity import sanity
from fastweights.report.settings import are_the_papers, settings
from fastweights.report.verdicts import NO_EVIDENCE, PAPER, citation, is_paper_item, judge

FIGURES = "figures"
FIGURES_OF_GROUP = (maps, improvements, over_axis, curve_figures, curves_on_test_data, learning_curves)
"""Functions that draw the figures of a group, in the order of the page."""
CAUTION = {
    "smoke": "These runs only show that everything works: they are far too short for their numbers to mean anything.",
    "long": "These are not the paper's settings: training used early stopping, or all training steps of the settings.",
    "cpu": "Models, data or training are smaller than in the paper; the differences are under Settings.",
    SANITY: "These runs only show that every model can learn with these settings: the task is easier than the table's.",
    FREE: "These runs have individual settings, which the rows name.",
}
PAPERS_SETTINGS = "These are the paper's settings: fewer models, columns or seeds, but no shorter runs."
HARDWARE = ("processor", "cores", "threads", "gpu", "torch", "fastweights")
"""Facts about a machine that a report names."""
MARK = "†"
"""Mark of a number whose runs were cut off."""
CUT_OFF = (
    f"{MARK} Cut off while improving: the runs used all training steps of the settings, and their best validation "
    "value came in the last fifth of them."
)
EVERY = "All seeds of a marked number were cut off."
EXCEPT = "All seeds of a marked number were cut off, except here:"
TITLE = "Experiments with fast weights, compared with the papers' numbers"


def write_report(collection: Collection) -> Path:
    """Writes `report.html`, `report.md` and the figures of the latter into the folder; returns the path of the HTML.

    Figures that only the previous report had are deleted.
    """
    folder, blocks = collection.folder, list(_page(collection))
    markdown, page = folder / "report.md", folder / "report.html"
    figures = _files(blocks)
    drawn = make_own_folder(folder / FIGURES)
    for name, content in figures.items():
        write_atomically(drawn / name, content)
    stale = _figures(markdown) - figures.keys()
    write_atomically(markdown, to_markdown(blocks, FIGURES).encode(errors="backslashreplace"))
    write_atomically(page, to_html(_title(collection), blocks).encode(errors="backslashreplace"))
    for name in stale:
        (drawn / name).unlink(missing_ok=True)
    return page


def draw_figures(collection: Collection) -> dict[str, bytes]:
    """The figures of the report by file name; `report.md` expects them in the folder `figures`."""
    return _files(_page(collection))


def _files(blocks: Iterable[Block]) -> dict[str, bytes]:
    return {f"{block.name}.{block.kind}": block.content for block in blocks if isinstance(block, Figure)}


def _figures(markdown: Path) -> set[str]:
    """The files of the figures of an existing report; none without a report."""
    text = read_file(markdown, "report").decode(errors="replace") if markdown.is_file() else ""
    return set(re.findall(rf"\]\({FIGURES}/([\w.-]+\.(?:svg|png))\)", text))


def _title(collection: Collection) -> str:
    """The experiment with its preset, so that no two reports have one title; of several, their names."""
    if len(collection.groups) != 1:
        return "Report: " + (", ".join(f"{group.name} ({group.preset})" for group in collection.groups) or "no runs")
    (group,) = collection.groups
    return f"{_name(group.experiment)} (preset {group.preset})"


def _name(experiment: Experiment) -> str:
    """The title of an experiment, after the table or the figure of the paper that it is."""
    return f"{citation(experiment.source)}: {experiment.title}" if is_paper_item(experiment) else experiment.title


def _page(collection: Collection) -> Iterator[Block]:
    yield Heading(1, _title(collection))
    for group in collection.groups:
        # The title of a report of one experiment is that of the experiment.
        yield Heading(2, group.name if len(collection.groups) == 1 else f"{group.name}: {group.experiment.title}")
        yield from _experiment(group)
    if collection.skipped:
        yield Heading(2, "Runs that are not counted")
        yield Bullets([f"{run.path.relative_to(collection.folder)}: {run.reason}" for run in collection.skipped])


def _experiment(group: Group) -> Iterator[Block]:
    experiment = group.experiment
    yield Paragraph(f"{experiment.source}. Preset {group.preset}, {_count(len(group.records), 'finished run')}.")
    yield from _caution(group)
    if PAPER in experiment.presets and experiment.claims and group.preset not in NO_EVIDENCE:
        yield Paragraph(f"Verdict: {judge(group)}")
    title = "Our numbers and the paper's" if experiment.published else "Our numbers"
    yield Heading(3, f"{title}: {group.metric.display.label}")
    yield _numbers(group)
    yield from _cut_off(group)
    data = group.metric.display.data
    yield Paragraph(f"Mean ± standard deviation (number of seeds), on {data} data, of {group.weights}.")
    yield from _further_numbers(group)
    yield from _findings(group)
    yield from sanity(group)
    if experiment.notes:
        yield Heading(3, "Notes")
        yield Bullets(experiment.notes)
    yield Heading(3, "Curves")
    yield from chain.from_iterable(draw(group) for draw in FIGURES_OF_GROUP)
    yield from episodes(group)
    yield Heading(3, "Settings")
    yield from settings(group)
    yield Heading(3, "Time and hardware")
    yield _times(group)
    yield from _hardware(group)


def _findings(group: Group) -> Iterator[Block]:
    """The best column of a search, or the claims that the numbers test."""
    if group.metric.display.data == "validation":
        yield Heading(3, "Best settings")
        yield Bullets(list(_choices(group)))
    elif findings := [*claims(group), *orders(group)]:
        yield Heading(3, "Tested claims")
        yield Bullets(findings)


def _caution(group: Group) -> Iterator[Block]:
    """The difference between the settings and those of the paper."""
    if are_the_papers(group):
        yield Paragraph(PAPERS_SETTINGS)
    elif group.preset in (*NO_EVIDENCE, FREE) or (PAPER in group.experiment.presets and group.preset in CAUTION):
        yield Paragraph(CAUTION[group.preset])


def _numbers(group: Group) -> Grid:
    experiment, results = group.experiment, group.results
    suffixes = (", ours", ", paper") if experiment.published else ("",)

    def numbers(model: str, column: str) -> list[str]:
        place = model, column
        mark = f" {MARK}" if any(record.cut_off for record in group.of(*place)) else ""
        return [
            format_summary(results.get(place)) + _best(results.get(place), group) + mark,
            format_published(experiment.published.get(place)),
        ][: len(suffixes)]

    rows = [[label, *(number for c in group.columns for number in numbers(m, c))] for m, label in group.models.items()]
    for name in dict.fromkeys(name for name, _ in group.baselines):
        baselines = [group.baselines.get((name, column)) for column in group.columns]
        empty = [""] * (len(suffixes) - 1)
        rows.append([name, *(cell for baseline in baselines for cell in (_baseline(baseline), *empty))])
    return Grid(["", *(label + suffix for label in group.columns.values() for suffix in suffixes)], rows)


def _baseline(summary: Summary | None) -> str:
    if summary is None:
        return ""
    return number(summary.mean) if summary.deviation is None else format_summary(summary)


def _further_numbers(group: Group) -> Iterator[Block]:
    """Aggregates over all columns, details, and results at equal time."""
    yield from aggregates(group)
    if group.details:
        yield Heading(3, "Details")
        yield _details(group)
    if not group.experiment.axis:
        yield Heading(3, "At equal time")
        yield _equal_time(group)
    if any(record.result.step_seconds for record in group.records):
        yield Heading(3, "Costs")
        yield _costs(group)
        yield Paragraph("Parameters and state: smallest and largest over columns. Speeds: medians over all runs.")


def _costs(group: Group) -> Grid:
    """Size and speed of every model: parameters, numbers in the state, training speed and latency of a time step."""
    header = ["", "parameters", "state", "training steps per second", "ms per time step at inference"]
    return Grid(header, [[label, *_cost(group, model)] for model, label in group.models.items()])


def _cost(group: Group, model: str) -> list[str]:
    results = [record.result for record in group.records if record.key[2] == model]
    if not results:
        return [""] * 4
    sizes = [[getattr(result, name) for result in results] for name in ("parameters", "state")]
    speed = median(result.steps / max(result.seconds, 1e-9) for result in results)
    latency = 1e3 * median(result.step_seconds for result in results)
    return [*map(_range, sizes), f"{speed:,.1f}", f"{latency:.2f}"]


def _range(numbers: list[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _details(group: Group) -> Grid:
    """Further measurements, ours and the paper's, by name and model."""
    experiment, details = group.experiment, group.details
    models = {model: label for model, label in group.models.items() if any(m == model for m, _ in details)}
    suffixes = (", ours", ", paper") if experiment.published_details else ("",)

    def numbers(model: str, name: Key) -> list[str]:
        both = [
            format_summary(details.get((model, name))),
            format_published(experiment.published_details.get((model, name))),
        ]
        return both[: len(suffixes)]

    rows = [
        [label, *(n for model in models for n in numbers(model, name))]
        for name, label in experiment.details.items()
        if any((model, name) in details for model in models)
    ]
    return Grid(["", *(label + suffix for label in models.values() for suffix in suffixes)], rows).upright()


def _cut_off(group: Group) -> Iterator[Block]:
    """The runs that ended while they were still improving."""
    experiment = group.experiment
    counts = Counter(record.key[2:4] for record in group.records if record.cut_off)
    some = [
        f"{experiment.models[m]}, {experiment.columns[c]} ({n} of {len(group.of(m, c))})"
        for (m, c), n in counts.items()
        if n < len(group.of(m, c))
    ]
    if counts:
        yield Paragraph(f"{CUT_OFF} {EXCEPT if some else EVERY}")
    if some:
        yield Bullets(some)


def _equal_time(group: Group) -> Grid:
    """The best validation value of every run at the time when the first run of its column ended."""
    experiment = group.experiment
    ends = {c: min(r.result.seconds for r in group.records if r.key[3] == c) for c in group.columns}
    header = [f"{experiment.columns[c]}, after {_duration(end)}" for c, end in ends.items()]
    rows = [
        [label, *(_summary_until(group.of(m, c), end, group.metric) for c, end in ends.items())]
        for m, label in group.models.items()
    ]
    return Grid(["validation", *header], rows)


def _summary_until(records: list[Record], end: float, metric: Metric) -> str:
    return format_summary(_until(records, end, metric), "none yet" if records else "not run")


def _until(records: list[Record], end: float, metric: Metric) -> Summary | None:
    """The best values until a time; None without runs, or if one of them had no evaluation by then."""
    lines = [[metric.at(line) for line in r.metrics if line["seconds"] <= end] for r in records]
    return Summary(tuple(map(metric.best, lines))) if lines and all(lines) else None


def _best(summary: Summary | None, group: Group) -> str:
    """The best seed, where the paper's figure shows the best of several runs."""
    if summary is None or len(summary.values) == 1 or not group.experiment.best:
        return ""
    return f", best {number(group.metric.best(summary.values))}"


def _choices(group: Group) -> Iterator[str]:
    """One sentence per model: the column with its best mean."""
    for model, label in group.models.items():
        means = {column: summary.mean for (m, column), summary in group.results.items() if m == model}
        best = group.metric.best(means, key=means.__getitem__)
        yield f"{label}: {group.columns[best]}, the best of {_count(len(means), 'column')}."


def _times(group: Group) -> Grid:
    carries = any(record.result.state for record in group.records)
    sizes = ["parameters", "state"] if carries else ["parameters"]
    header = [
        "run",
        "seed",
        *sizes,
        "training steps",
        "best at",
        "stopped by",
        "per second",
        "wall time",
        "on test data",
    ]
    return Grid(header, [_time_row(group, n, carries) for n in range(len(group.records))])


def _time_row(group: Group, n: int, carries: bool) -> list[str]:
    record, experiment = group.records[n], group.experiment
    result, (_, _, model, column, seed) = record.result, record.key
    rate = result.steps / max(result.seconds, 1e-9)
    name = f"{experiment.models[model]}, {experiment.columns[column]}"
    state = [f"{result.state:,}" if result.state else ""] if carries else []
    numbers = [f"{result.parameters:,}", *state, f"{result.steps:,}", f"{result.step:,}", result.stopped]
    others = {str(name): value for name, value in result.numbers().items() if name not in experiment.details}
    test = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in others.items())
    return [name, str(seed), *numbers, f"{rate:,.1f}", _duration(result.seconds), test]


def _hardware(group: Group) -> Iterator[Block]:
    total = sum(record.result.seconds for record in group.records)
    yield Paragraph(f"Training time of all runs: {_duration(total)}.")
    machines: dict[str, set[str]] = {}
    for environment in (record.environment for record in group.records):
        machine = ", ".join(f"{name} {environment[name]}" for name in HARDWARE if environment.get(name))
        machines.setdefault(machine, set()).add(str(environment.get("revision", "unknown"))[:10])
    yield Bullets([f"{machine}; revision {', '.join(sorted(machines[machine]))}" for machine in sorted(machines)])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
