"""A learning curve as a picture."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastweights.files import write_atomically

ROWS = 12
"""How many names of two lines each find room above each other."""


def draw_learning_curve(path: Path, metrics: Sequence[Mapping[str, Any]], baselines: Mapping[str, float]) -> None:
    """Draws bits over steps into a PNG file, with a named line at every baseline that lies in their range."""
    # matplotlib takes a second to import, and only this function needs it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.09, right=0.75)
    steps = [line["step"] for line in metrics]
    axes.plot(steps, [line["train_bits"] for line in metrics], label="training")
    axes.plot(steps, [line["validation_bits"] for line in metrics], label="validation")
    axes.set(xlabel="updates", ylabel="bits a character", title=path.parent.name, xlim=(0, steps[-1]))
    axes.legend()
    bottom, top = axes.get_ylim()
    seen = sorted((bits, name) for name, bits in baselines.items() if bottom < bits < top)
    heights = apart([bits for bits, _ in seen], (top - bottom) / ROWS)
    for (bits, name), height in zip(seen, heights, strict=True):
        axes.axhline(bits, color="grey", linestyle=":", linewidth=1)
        beside: Any = {"xycoords": axes.get_yaxis_transform(), "textcoords": axes.get_yaxis_transform()}
        leader = {"arrowstyle": "-", "color": "grey", "linewidth": 0.5, "relpos": (0, 0.5)}
        axes.annotate(name, (1, bits), (1.04, height), va="center", fontsize=9, arrowprops=leader, **beside)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    write_atomically(path, picture.getvalue())


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights moved up until neighbours are a gap apart."""
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + gap) if moved else height)
    return moved
