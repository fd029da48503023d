"""A learning curve as a picture."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastweights.files import write_atomically


def draw_learning_curve(path: Path, metrics: Sequence[Mapping[str, Any]], baselines: Mapping[str, float]) -> None:
    """Draws bits over steps into a PNG file, with a named line at every baseline that lies in their range."""
    # matplotlib takes a second to import, and only this function needs it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.09, right=0.76)
    steps = [line["step"] for line in metrics]
    axes.plot(steps, [line["train_bits"] for line in metrics], label="training")
    axes.plot(steps, [line["validation_bits"] for line in metrics], label="validation")
    axes.set(xlabel="updates", ylabel="bits a character", title=path.parent.name, xlim=(0, steps[-1]))
    axes.legend()
    bottom, top = axes.get_ylim()
    for name, bits in baselines.items():
        if bottom < bits < top:
            axes.axhline(bits, color="grey", linestyle=":", linewidth=1)
            axes.text(1.01, bits, name, transform=axes.get_yaxis_transform(), va="center")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    write_atomically(path, picture.getvalue())
