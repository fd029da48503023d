"""A chart: lines over an axis, as SVG that is right by day and by night, on a telephone and on a desk."""

import io
import math
from collections.abc import Iterator, Sequence
from itertools import cycle, product
from textwrap import fill
from typing import Any, Literal, NamedTuple

from fastweights.report.limits import Limits, find_limits
from fastweights.report.palette import LIGHT, dark_mode

WIDTH, HEIGHT = 4.6, 3.2
"""Inches without the legend; small, so that letters can be read on a telephone."""
STYLES = ("-", (0, (4, 1.5)), (0, (1, 1)))
"""For more models than there are colours."""
SHAPES = ((3, 20), (2, 32), (1, 54), (1, 27), (1, 13))
"""Columns and letters a line that a legend may have: the first that fits is taken."""
PARAMETERS: dict[Any, Any] = {
    "text.parse_math": False,
    "svg.hashsalt": "fastweights",  # The same lines give the same file.
    "svg.fonttype": "path",  # The same everywhere, whatever fonts the reader has.
    "figure.facecolor": LIGHT.paper,
    "axes.facecolor": "none",
    "grid.color": LIGHT.faint,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), LIGHT.ink),
}


class Line(NamedTuple):
    """Numbers over an axis: those of a run, or of a table's row, ours or the paper's; `dots` if nothing joins them."""

    name: str
    points: Sequence[tuple[float, float]]
    theirs: bool = False
    dots: bool = False


class Sign(NamedTuple):
    """A mark at the edge, for what the axis does not show of a name: an arrow to the number that is farthest off, or a
    cross at the first that is none."""

    mark: Literal["^", "v", "x"]
    name: str
    x: float
    y: float


class Chart(NamedTuple):
    """What to draw.

    `names` are all that may have lines, in the order of their colours; `errors` says that low is good, `logarithmic`
    that the axis has to be so; `switch` puts a line across the axis.
    """

    title: str
    across: str
    up: str
    names: Sequence[str]
    lines: Sequence[Line]
    errors: bool
    logarithmic: bool = False
    switch: float | None = None

    @property
    def limits(self) -> Limits:
        return find_limits([[y for _, y in line.points] for line in self.lines], self.logarithmic, self.errors)

    @property
    def signs(self) -> list[Sign]:
        """Up to three a name."""
        limits = self.limits
        points = [(line.name, x, y) for line in self.lines for x, y in line.points]
        placed = sorted((limits.place(y), name, x, y) for name, x, y in points if not math.isnan(y))
        # What comes last for a name is kept.
        above = {name: Sign("^", name, x, y) for place, name, x, y in placed if place > 1}
        below = {name: Sign("v", name, x, y) for place, name, x, y in reversed(placed) if place < 0}
        lost = {name: Sign("x", name, x, y) for name, x, y in sorted(points, reverse=True) if math.isnan(y)}
        return [signs[name] for name in self.names for signs in (above, below, lost) if name in signs]

    @property
    def remarks(self) -> str:
        """What the axis does not show, in sentences; empty if it shows all."""
        ways = {"^": "up", "v": "down"}
        far = [f"{sign.name} ({ways[sign.mark]} to {sign.y:.3g})" for sign in self.signs if sign.mark in ways]
        lost = [sign.name for sign in self.signs if sign.mark == "x"]
        beyond = f"Beyond the axis, at the arrows: {'; '.join(far)}." if far else ""
        missing = f"Not a number from the cross on: {'; '.join(lost)}." if lost else ""
        return " ".join(filter(None, (beyond, missing)))


def draw(chart: Chart) -> bytes:
    """The chart as SVG."""
    # matplotlib takes a second to import, and only pictures need it.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(PARAMETERS):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        looks = dict(zip(chart.names, _looks(), strict=False))
        for line in chart.lines:
            _draw_line(axes, line, chart, looks[line.name])
        if chart.switch is not None:
            axes.axvline(chart.switch, color=LIGHT.ink, linestyle=":", linewidth=1)
        _draw_signs(axes, chart, looks)
        _draw_axes(axes, chart)
        _draw_legend(figure, list(_entries(chart, looks)))
        picture = io.BytesIO()
        figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": "fastweights"})
    return picture.getvalue().replace(b"<defs>", f"<defs><style>{dark_mode()}</style>".encode(), 1)


def _looks() -> Iterator[dict[str, Any]]:
    return ({"color": colour, "linestyle": style} for style, colour in cycle(product(STYLES, LIGHT.series)))


def _draw_line(axes: Any, line: Line, chart: Chart, look: dict[str, Any]) -> None:
    across, up = zip(*line.points, strict=True)
    if line.theirs:
        look = look | {"linestyle": ":", "linewidth": 1, "marker": "x"}
    elif line.dots or len(line.points) == 1:  # One point makes no line.
        look = look | {"marker": "o", "linestyle": "none"}
    axes.plot(across, up, **{"linewidth": 1.3, "markersize": 4, **look})


def _draw_signs(axes: Any, chart: Chart, looks: dict[str, dict[str, Any]]) -> None:
    heights = {"^": 0.97, "v": 0.03, "x": 0.97 if chart.errors else 0.03}
    for mark, name, x, _ in chart.signs:
        edge = {"transform": axes.get_xaxis_transform(), "clip_on": False}
        axes.plot([x], [heights[mark]], mark, color=looks[name]["color"], markersize=7, **edge)


def _draw_axes(axes: Any, chart: Chart) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    limits = chart.limits
    if limits.logarithmic:
        axes.set_yscale("log")
        decades = math.log10(limits.high / limits.low)
        steps = (1, 2, 5) if decades < 1.5 else (1, 3) if decades < 3 else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=steps, numticks=10))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    millions = axes.get_xlim()[1] >= 2e6
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:,g} M" if millions else f"{value:,.9g}")
    axes.set_ylim(limits.low, limits.high)
    axes.set_title(fill(chart.title, 44), fontsize=11)
    axes.set_xlabel(fill(chart.across, 50))
    axes.set_ylabel(fill(chart.up, 32))
    axes.grid()
    axes.set_axisbelow(True)


def _entries(chart: Chart, looks: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the legend explains."""
    drawn = {line.name for line in chart.lines}
    marker = {"marker": "o", "markersize": 4} if any(line.dots for line in chart.lines) else {}
    yield from ((name, look | marker) for name, look in looks.items() if name in drawn)
    if any(line.theirs for line in chart.lines):
        yield "ours", {"color": LIGHT.ink, **marker}
        yield "the paper's", {"color": LIGHT.ink, "linestyle": ":", "linewidth": 1, "marker": "x", "markersize": 4}


def _draw_legend(figure: Any, entries: list[tuple[str, dict[str, Any]]]) -> None:
    """Below the axes, in as many columns as fit; the picture grows by it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    measure = FigureCanvasAgg(figure).get_renderer()
    for shape in SHAPES:
        legend = _legend(figure, entries, *shape)
        box = legend.get_window_extent(measure)
        if box.width < 0.96 * figure.bbox.width or shape == SHAPES[-1]:
            break
        legend.remove()
    figure.set_size_inches(WIDTH, HEIGHT + box.height / figure.dpi)


def _legend(figure: Any, entries: list[tuple[str, dict[str, Any]]], columns: int, letters: int) -> Any:
    from matplotlib.lines import Line2D

    balanced = math.ceil(len(entries) / math.ceil(len(entries) / columns))
    handles = [Line2D([], [], **look) for _, look in entries]
    names = [fill(name, letters) for name, _ in entries]
    return figure.legend(handles, names, loc="outside lower center", frameon=False, fontsize=9, ncols=balanced)
