"""Renderings of an episode: an animation, and a sheet of frames with the time series of its memories."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from fastweights.core.printable import printable
from fastweights.inspect.episode import Episode
from fastweights.inspect.memory_trace import MemoryTrace
from fastweights.report.chart import PARAMETERS
from fastweights.report.palette import LIGHT

FRAMES = 10
"""Maximum number of frames of a sheet."""
MILLISECONDS = 200
"""Duration of a step in the animation."""
SERIES = {"written": 0, "read": 1}
"""Time series of a memory that are drawn, with the index of their colours."""


def sheet(episode: Episode, title: str) -> bytes:
    """Renders a PNG: frames, values and rewards, and the time series and origins of reads of every memory."""
    rows = 2 + len(episode.memories)
    with rc_context(PARAMETERS):
        figure: Any = Figure(figsize=(11, 2.2 * rows), layout="constrained")
        figure.suptitle(printable(title), fontsize=11)
        parts = figure.subfigures(rows, 1, height_ratios=(3, *[4] * (rows - 1)))
        _draw_frames(parts[0], episode)
        _draw_values(parts[1].subplots(), episode)
        for part, contents in zip(parts[2:], episode.memories, strict=True):
            left, right = part.subplots(1, 2, width_ratios=(3, 1))
            _draw_series(left, contents)
            _draw_attention(right, contents)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def animation(episode: Episode) -> bytes:
    """Renders a GIF: every step next to the time series, with a line at the current step."""
    first, *rest_of_frames = _steps(episode)
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=rest_of_frames, duration=MILLISECONDS, loop=0)
    return file.getvalue()


def _steps(episode: Episode) -> Iterator[Any]:
    rows = 1 + len(episode.memories)
    with rc_context(PARAMETERS):
        figure: Any = Figure(figsize=(8, max(2.8, 1.7 * rows)), layout="constrained")
        canvas = FigureCanvasAgg(figure)
        left, right = figure.subfigures(1, 2, width_ratios=(2, 3))
        scene = left.subplots()
        image = _draw_frame(scene, episode, 0)
        charts = right.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
        _draw_values(charts[0], episode)
        for axes, contents in zip(charts[1:], episode.memories, strict=True):
            _draw_series(axes, contents)
        markers = [axes.axvline(1, color=LIGHT.ink, linestyle=":", linewidth=1) for axes in charts]
        for t, frame in enumerate(episode.frames.numpy()):
            image.set_data(frame)
            scene.set_title(_caption(episode, t), fontsize=9)
            for line in markers:
                line.set_xdata([t + 1, t + 1])
            canvas.draw()
            yield Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("P")


def _draw_frames(part: Any, episode: Episode) -> None:
    """Draws evenly spaced frames, with the first and the last."""
    T = len(episode.actions)
    chosen = torch.linspace(0, T - 1, min(T, FRAMES)).round().int().tolist()
    for axes, t in zip(np.ravel(part.subplots(1, len(chosen))), chosen, strict=True):
        _draw_frame(axes, episode, t)


def _draw_frame(axes: Any, episode: Episode, t: int) -> Any:
    frame = episode.frames[t].numpy()
    axes.set_title(_caption(episode, t), fontsize=8)
    axes.set(xticks=[], yticks=[])
    return axes.imshow(frame, interpolation="nearest")


def _caption(episode: Episode, t: int) -> str:
    earned = float(episode.rewards[t]) + 0.0
    return f"step {t + 1}\naction {_action(episode, t)}\nearns {earned:.3g}"


def _action(episode: Episode, t: int) -> str:
    """Text of an action with its probability; without it for real numbers."""
    action = episode.actions[t]
    if action.is_floating_point():
        return " ".join(f"{value:.2g}" for value in action.tolist())
    numbers = " ".join(map(str, action.reshape(-1).tolist()))
    return f"{numbers} ({100 * float(episode.probabilities[t]):.0f} %)"


def _draw_values(axes: Any, episode: Episode) -> None:
    """Draws the value estimates and the cumulative reward."""
    steps = range(1, len(episode.actions) + 1)
    axes.plot(steps, episode.values.numpy(), color=LIGHT.series[2], label="value", marker=".")
    axes.plot(steps, episode.rewards.cumsum(0).numpy(), color=LIGHT.series[3], label="earned", marker=".")
    _label(axes, "the agent")


def _draw_series(axes: Any, contents: MemoryTrace) -> None:
    """Draws one line per head."""
    for name, colour in SERIES.items():
        series = contents.series[name].numpy()
        lines = axes.plot(range(1, len(series) + 1), series, color=LIGHT.series[colour], linewidth=1, marker=".")
        lines[0].set_label(name)
    _label(axes, f"{contents.name}: {contents.cell}, one line per head")


def _label(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.tick_params(labelsize=8)
    axes.grid()
    axes.legend(fontsize=8, frameon=False, loc="upper right")  # "best" takes seconds for long curves


def _draw_attention(axes: Any, contents: MemoryTrace) -> None:
    """Draws the influence of every step on every read, averaged over heads."""
    T = contents.attention.shape[1]
    share = contents.attention.abs().mean(0).numpy()
    axes.imshow(share, cmap="Blues", extent=(0.5, T + 0.5, T + 0.5, 0.5), interpolation="nearest")
    axes.set_title("influence of steps (columns) on reads (rows)", fontsize=9)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, integer=True))
    axes.tick_params(labelsize=8)
