"""A learning curve as an image."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastweights.core.files import write_atomically
from fastweights.core.metric import Metric
from fastweights.core.printable import printable

ROWS = 12
"""Number of labels of two lines each that fit above each other."""


def draw_learning_curve(
    folder: Path, metrics: Sequence[Mapping[str, Any]], metric: Metric, baselines: Mapping[str, float]
) -> Path:
    """Draws a run's main metric over steps into a PNG file, with a named line at every baseline in its range."""
    # matplotlib takes a second to import, and only figures need it.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Names of folders and of baselines are not formulas.
    with rc_context({"text.parse_math": False}):
        return _draw(Figure(figsize=(9, 5)), folder, metrics, metric, baselines)


def _draw(
    figure: Any, folder: Path, metrics: Sequence[Mapping[str, Any]], metric: Metric, baselines: Mapping[str, float]
) -> Path:
    axes = figure.subplots()
    figure.subplots_adjust(left=0.09, right=0.75)
    steps = [line["step"] for line in metrics]
    for part, label in {"train": "training", "validation": "validation"}.items():
        curve = [line[part].get(metric.name, math.nan) for line in metrics]
        axes.plot(steps, curve, label=label)
    axes.set(xlabel="training steps", ylabel=metric.name, title=printable(folder.name), xlim=(0, steps[-1]))
    axes.legend(loc="upper right")  # "best" takes seconds for long curves
    bottom, top = axes.get_ylim()
    visible = sorted((value, name) for name, value in baselines.items() if bottom < value < top)
    heights = apart([value for value, _ in visible], (top - bottom) / ROWS)
    for (value, name), height in zip(visible, heights, strict=True):
        axes.axhline(value, color="grey", linestyle=":", linewidth=1)
        coordinates: Any = {"xycoords": axes.get_yaxis_transform(), "textcoords": axes.get_yaxis_transform()}
        leader = {"arrowstyle": "-", "color": "grey", "linewidth": 0.5, "relpos": (0, 0.5)}
        label_text = f"{printable(name)}: {value:.2f}\n(test data)"
        axes.annotate(label_text, (1, value), (1.04, height), va="center", fontsize=9, arrowprops=leader, **coordinates)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    path = folder / "learning_curve.png"
    write_atomically(path, buffer.getvalue())
    return path


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights, moved up until the distance of neighbours is at least `gap`."""
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + gap) if moved else height)
    return moved
