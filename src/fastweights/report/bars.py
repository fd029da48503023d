"""A chart of bars: one number per name, in ascending order, as SVG in light and dark colours."""

import io
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastweights.report.chart import PARAMETERS, WIDTH
from fastweights.report.palette import LIGHT, dark_mode

ROW = 0.3
"""Height of a bar in inches."""


class Bars(NamedTuple):
    """A chart of bars: its title, the label of the axis, and the values by name."""

    title: str
    across: str
    values: Mapping[str, float]

    @property
    def ordered(self) -> list[tuple[str, float]]:
        """Names and finite values, in ascending order."""
        finite = [(name, value) for name, value in self.values.items() if math.isfinite(value)]
        return sorted(finite, key=lambda pair: pair[1])


def draw_bars(chart: Bars) -> bytes:
    """The chart as SVG."""
    # matplotlib takes a second to import, and only figures need it.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(PARAMETERS):
        figure: Any = Figure(figsize=(WIDTH, 1.2 + ROW * len(chart.ordered)), layout="constrained")
        axes = figure.subplots()
        for place, (_, value) in enumerate(chart.ordered):
            axes.barh(place, value, height=0.7, color=LIGHT.series[0 if value >= 0 else 1])
        axes.set_yticks(range(len(chart.ordered)), [name for name, _ in chart.ordered])
        axes.axvline(0, color=LIGHT.ink, linewidth=1)
        axes.set_title(chart.title, fontsize=11)
        axes.set_xlabel(chart.across)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "fastweights"})
    return buffer.getvalue().replace(b"<defs>", f"<defs><style>{dark_mode()}</style>".encode(), 1)
