"""A learning curve as a picture."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastweights.training.files import write_atomically


def draw_learning_curve(path: Path, metrics: Sequence[Mapping[str, Any]], baselines: Mapping[str, float]) -> None:
    """Draws training and validation bits over steps, and a horizontal line a baseline, into a PNG file."""
    # matplotlib takes a second to import, and only this function needs it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    steps = [line["step"] for line in metrics]
    for n, (name, bits) in enumerate(baselines.items()):
        axes.axhline(bits, color=f"{0.35 + 0.1 * n:.2f}", linestyle=":", linewidth=1)
        axes.annotate(f"{name}, {bits:.2f}", (1, bits), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    axes.plot(steps, [line["train_bits"] for line in metrics], label="training")
    axes.plot(steps, [line["validation_bits"] for line in metrics], label="validation")
    axes.set(xlabel="updates", ylabel="bits a character", title=path.parent.name)
    axes.set_ylim(top=min(max(line["train_bits"] for line in metrics), 4.5))
    axes.legend(loc="upper center")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    write_atomically(path, picture.getvalue())
