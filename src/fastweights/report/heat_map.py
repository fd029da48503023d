"""A heat map of pairs: a number and a shade per pair, darker for better, as SVG in light and dark colours."""

import io
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastweights.report.chart import PARAMETERS
from fastweights.report.palette import LIGHT, dark_mode

SIDE = 0.72
"""Side of a square in inches."""


class HeatMap(NamedTuple):
    """A heat map.

    Args:
        title: Title.
        rows: Label of the vertical axis, and the labels of the rows.
        columns: Label of the horizontal axis, and the labels of the columns.
        values: Values by row and column.
        errors: Whether lower values are better.
    """

    title: str
    rows: tuple[str, Mapping[str, str]]
    columns: tuple[str, Mapping[str, str]]
    values: Mapping[tuple[str, str], float]
    errors: bool

    def shades(self) -> dict[tuple[str, str], float]:
        """Shades from 0 for the worst value to 1 for the best; 0 for values that are not finite."""
        finite = [value for value in self.values.values() if math.isfinite(value)] or [0.0]
        worst, best = (max(finite), min(finite)) if self.errors else (min(finite), max(finite))
        width = (best - worst) or 1.0
        return {place: (v - worst) / width if math.isfinite(v) else 0.0 for place, v in self.values.items()}


def draw_map(chart: HeatMap) -> bytes:
    """The map as SVG."""
    # matplotlib takes a second to import, and only figures need it.
    import matplotlib
    from matplotlib.figure import Figure

    (across, columns), (down, rows) = chart.columns, chart.rows
    with matplotlib.rc_context(PARAMETERS):
        figure = Figure(figsize=(1.6 + SIDE * len(columns), 1.4 + SIDE * len(rows)), layout="constrained")
        axes = figure.subplots()
        _draw_squares(axes, chart)
        axes.set_xticks(range(len(columns)), columns.values(), rotation=45, ha="right")
        axes.set_yticks(range(len(rows)), rows.values())
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), aspect="equal")
        axes.set_title(chart.title, fontsize=11)
        axes.set_xlabel(across)
        axes.set_ylabel(down)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "fastweights"})
    return buffer.getvalue().replace(b"<defs>", f"<defs><style>{dark_mode()}</style>".encode(), 1)


def _draw_squares(axes: Any, chart: HeatMap) -> None:
    from matplotlib.patches import Rectangle

    shades = chart.shades()
    for y, row in enumerate(chart.rows[1]):
        for x, column in enumerate(chart.columns[1]):
            if (row, column) in shades:
                # Light enough to read a number on it.
                look: Any = {"facecolor": LIGHT.series[0], "alpha": 0.6 * shades[row, column], "linewidth": 0}
                axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **look))
                axes.text(x, y, f"{chart.values[row, column]:.2f}", ha="center", va="center", fontsize=9)
