"""An episode as a film, and as a sheet of frames above what its memories wrote and read at every step."""

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
from fastweights.inspect.contents import Contents
from fastweights.inspect.episode import Episode
from fastweights.report.chart import PARAMETERS
from fastweights.report.palette import LIGHT

FRAMES = 10
"""Frames of a sheet, at most."""
MILLISECONDS = 200
"""That a step is shown."""
COURSES = {"written": 0, "read": 1}
"""What is drawn of a memory, and in which colour."""


def sheet(episode: Episode, title: str) -> bytes:
    """A PNG: frames, what was expected and earned, and of every memory its courses and what reads stem from."""
    rows = 2 + len(episode.memories)
    with rc_context(PARAMETERS):
        figure: Any = Figure(figsize=(11, 2.2 * rows), layout="constrained")
        figure.suptitle(printable(title), fontsize=11)
        parts = figure.subfigures(rows, 1, height_ratios=(3, *[4] * (rows - 1)))
        _draw_frames(parts[0], episode)
        _draw_values(parts[1].subplots(), episode)
        for part, contents in zip(parts[2:], episode.memories, strict=True):
            left, right = part.subplots(1, 2, width_ratios=(3, 1))
            _draw_courses(left, contents)
            _draw_attention(right, contents)
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=110)
    return picture.getvalue()


def film(episode: Episode) -> bytes:
    """A GIF: every step beside the courses, with a line where it is."""
    first, *others = _steps(episode)
    told = io.BytesIO()
    first.save(told, "GIF", save_all=True, append_images=others, duration=MILLISECONDS, loop=0)
    return told.getvalue()


def _steps(episode: Episode) -> Iterator[Any]:
    rows = 1 + len(episode.memories)
    with rc_context(PARAMETERS):
        figure: Any = Figure(figsize=(8, max(2.8, 1.7 * rows)), layout="constrained")
        canvas = FigureCanvasAgg(figure)
        left, right = figure.subfigures(1, 2, width_ratios=(2, 3))
        scene = left.subplots()
        seen = _draw_frame(scene, episode, 0)
        charts = right.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
        _draw_values(charts[0], episode)
        for axes, contents in zip(charts[1:], episode.memories, strict=True):
            _draw_courses(axes, contents)
        here = [axes.axvline(1, color=LIGHT.ink, linestyle=":", linewidth=1) for axes in charts]
        for t, frame in enumerate(episode.frames.numpy()):
            seen.set_data(frame)
            scene.set_title(_caption(episode, t), fontsize=9)
            for line in here:
                line.set_xdata([t + 1, t + 1])
            canvas.draw()
            yield Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("P")


def _draw_frames(part: Any, episode: Episode) -> None:
    """As many as have room, the first and the last among them."""
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
    """An action, and its probability; real numbers have none."""
    action = episode.actions[t]
    if action.is_floating_point():
        return " ".join(f"{value:.2g}" for value in action.tolist())
    said = " ".join(map(str, action.reshape(-1).tolist()))
    return f"{said} ({100 * float(episode.probabilities[t]):.0f} %)"


def _draw_values(axes: Any, episode: Episode) -> None:
    """What the agent expects of the rest of the episode, and what it has earned so far."""
    steps = range(1, len(episode.actions) + 1)
    axes.plot(steps, episode.values.numpy(), color=LIGHT.series[2], label="value", marker=".")
    axes.plot(steps, episode.rewards.cumsum(0).numpy(), color=LIGHT.series[3], label="earned", marker=".")
    _label(axes, "the agent")


def _draw_courses(axes: Any, contents: Contents) -> None:
    """A line a head."""
    for name, colour in COURSES.items():
        course = contents.courses[name].numpy()
        lines = axes.plot(range(1, len(course) + 1), course, color=LIGHT.series[colour], linewidth=1, marker=".")
        lines[0].set_label(name)
    _label(axes, f"{contents.name}: {contents.cell}, a line a head")


def _label(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.tick_params(labelsize=8)
    axes.grid()
    axes.legend(fontsize=8, frameon=False)


def _draw_attention(axes: Any, contents: Contents) -> None:
    """How much every read stems from every step, all heads together."""
    T = contents.attention.shape[1]
    share = contents.attention.abs().mean(0).numpy()
    axes.imshow(share, cmap="Blues", extent=(0.5, T + 0.5, T + 0.5, 0.5), interpolation="nearest")
    axes.set_title("what a read (row) stems from", fontsize=9)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, integer=True))
    axes.tick_params(labelsize=8)
