"""A chart: lines over an axis, as SVG in light and dark colours, readable on a narrow screen."""

import io
import math
from collections.abc import Iterator, Sequence
from itertools import cycle, product
from textwrap import fill
from typing import Any, Literal, NamedTuple

from fastweights.report.limits import Limits, find_limits
from fastweights.report.palette import LIGHT, dark_mode

WIDTH, HEIGHT = 4.6, 3.2
"""Inches without the legend; small, so that letters can be read on a narrow screen."""
STYLES = ("-", (0, (4, 1.5)), (0, (1, 1)))
"""Line styles, for charts with more models than colours."""
SHAPES = ((3, 20), (2, 32), (1, 54), (1, 27), (1, 13))
"""Numbers of columns of a legend, and of letters per line; a chart takes the first that fits."""
PARAMETERS: dict[Any, Any] = {
    "text.parse_math": False,
    "svg.hashsalt": "fastweights",  # The same lines give the same file.
    "svg.fonttype": "path",  # The file looks the same without the fonts of this machine.
    "figure.facecolor": LIGHT.paper,
    "axes.facecolor": "none",
    "grid.color": LIGHT.faint,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), LIGHT.ink),
}


class Line(NamedTuple):
    """A named line of points (x, y).

    Args:
        name: Name of the model.
        points: The points.
        is_published: Whether the points are numbers of the paper.
        dots: Whether the points are drawn without a line between them.
    """

    name: str
    points: Sequence[tuple[float, float]]
    is_published: bool = False
    dots: bool = False


class Sign(NamedTuple):
    """A mark at the edge of a chart for points that the axis does not show.

    An arrow marks the point of a name that is farthest beyond the axis, a cross its first NaN.
    """

    mark: Literal["^", "v", "x"]
    name: str
    x: float
    y: float


class Chart(NamedTuple):
    """A chart of lines.

    Args:
        title: Title.
        across: Label of the horizontal axis.
        up: Label of the vertical axis.
        names: All names that lines may have, in the order of their colours.
        lines: The lines.
        errors: Whether lower values are better.
        logarithmic: Whether the vertical axis must be logarithmic.
        switch: Position of a vertical line; None for no line.
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
        """The marks at the edges, up to three per name."""
        limits = self.limits
        points = [(line.name, x, y) for line in self.lines for x, y in line.points]
        placed = sorted((limits.place(y), name, x, y) for name, x, y in points if not math.isnan(y))
        # In a dictionary the last entry of a name remains: the farthest point, or the first NaN.
        above = {name: Sign("^", name, x, y) for place, name, x, y in placed if place > 1}
        below = {name: Sign("v", name, x, y) for place, name, x, y in reversed(placed) if place < 0}
        lost = {name: Sign("x", name, x, y) for name, x, y in sorted(points, reverse=True) if math.isnan(y)}
        return [signs[name] for name in self.names for signs in (above, below, lost) if name in signs]

    @property
    def remarks(self) -> str:
        """Sentences about the points beyond the axis; empty if it shows all points."""
        directions = {"^": "up", "v": "down"}
        beyond = [
            f"{sign.name} ({directions[sign.mark]} to {sign.y:.3g})" for sign in self.signs if sign.mark in directions
        ]
        lost = [sign.name for sign in self.signs if sign.mark == "x"]
        arrows = f"Beyond the axis, at the arrows: {'; '.join(beyond)}." if beyond else ""
        crosses = f"Not a number from the cross on: {'; '.join(lost)}." if lost else ""
        return " ".join(filter(None, (arrows, crosses)))


def draw(chart: Chart) -> bytes:
    """The chart as SVG."""
    # matplotlib takes a second to import, and only figures need it.
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
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "fastweights"})
    return buffer.getvalue().replace(b"<defs>", f"<defs><style>{dark_mode()}</style>".encode(), 1)


def _looks() -> Iterator[dict[str, Any]]:
    return ({"color": colour, "linestyle": style} for style, colour in cycle(product(STYLES, LIGHT.series)))


def _draw_line(axes: Any, line: Line, chart: Chart, look: dict[str, Any]) -> None:
    across, up = zip(*line.points, strict=True)
    if line.is_published:
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
    """The names and styles in the legend."""
    names = {line.name for line in chart.lines}
    marker = {"marker": "o", "markersize": 4} if any(line.dots for line in chart.lines) else {}
    yield from ((name, look | marker) for name, look in looks.items() if name in names)
    if any(line.is_published for line in chart.lines):
        yield "ours", {"color": LIGHT.ink, **marker}
        yield "the paper's", {"color": LIGHT.ink, "linestyle": ":", "linewidth": 1, "marker": "x", "markersize": 4}


def _draw_legend(figure: Any, entries: list[tuple[str, dict[str, Any]]]) -> None:
    """Draws the legend below the axes, in as many columns as fit, and makes the figure higher by it."""
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
