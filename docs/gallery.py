"""The gallery of the site: pictures of every cell on the same short sequence, and of every feature map over a plane.

Pictures are transparent, to match the light and the dark theme of the site.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from latex import latex
from playground_build import has_compiler
from playground_stream import PAGE as STREAM
from torch import Tensor

from fastweights import Cell, scan
from fastweights.inspect import MemoryTrace, analyze, record_scans
from fastweights.layers.base.slow_net import feature_map
from fastweights.registry import FEATURE_MAPS, describe
from fastweights.report.palette import LIGHT, rgb
from fastweights.report.png import png
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape

WRITTEN, QUERIED = "abcdabcdaabbccdd", "aabbccddabcdabcd"
"""Letters of the keys of every time step: the key of the write, which has a new value, and the key of the query."""
SIZE = 8
PIXELS = 8
"""Width and height of a time step in pixels."""
RANDOM = ("momentum", "gate", "erase")
"""Rates that stay random: with 1, a memory would store nothing or erase everything."""


def write(source: Path) -> None:
    """Writes the page, and a picture per cell and feature map."""
    (source / "pictures").mkdir(exist_ok=True)
    source.joinpath("gallery.md").write_text("\n\n".join(_page(source / "pictures")) + "\n", encoding="utf-8")


def _page(pictures: Path) -> Iterator[str]:
    yield "# Gallery"
    yield (
        f"Every cell reads the same sequence of {len(WRITTEN)} time steps. At each step it stores a new value under "
        f"the key of one of the letters `{WRITTEN}`, and then it is queried with the key of one of `{QUERIED}`. A "
        "picture shows from which step (column) each output (row) comes. Blue is a positive and orange a negative "
        "contribution; strong colours are the largest contributions of the picture. The sum rule returns everything "
        "that was stored under a letter, the delta rule only the last value. Cells that compute their keys themselves "
        "read random vectors with random slow weights. Their pictures show how strongly an output depends on each step."
    )
    yield from _interactive_memory()
    yield "## Cells"
    for name in Cell.names():
        cell = Cell.from_name(name)
        described, file = describe(cell.summary), f"pictures/cell-{name}.png"
        pictures.joinpath(f"cell-{name}.png").write_bytes(png(picture(contents(cell)).numpy()))
        yield f"### {name} in the gallery"
        yield f"$$\n{latex(described.formula)}\n$$"
        caption = (
            f"[{name}](cells/{name}.md): {described.summary} Rows are outputs, columns are the steps they come from."
        )
        yield figure(file, f"Contributions of the steps to the outputs of {name}", caption)
    yield from _feature_maps(pictures)


def _interactive_memory() -> Iterator[str]:
    """The page of `playground_stream.py`, in a frame."""
    if has_compiler():
        yield "## Interactive memory"
        yield (
            "Choose a rule, write pairs of keys and values, and see the memory, the retrieved values and their errors. "
            "The frame runs the compiled rules of the library in your browser. It is also "
            f'<a href="{STREAM}">a page by itself</a>. [Models that write in your browser](playground.md) shows '
            "memories in language models."
        )
        yield (
            f'<iframe src="{STREAM}" title="A memory, step by step" '
            'style="width: 100%; height: 90rem; border: 0"></iframe>'
        )


def figure(file: str, alternative: str, caption: str) -> str:
    """A picture with a caption."""
    return f"```{{figure}} {file}\n:alt: {alternative}\n:class: follows-theme\n\n{caption}\n```"


def surfaces(name: str, points: int = 41) -> Tensor:
    """Components `[output_size, points, points]` of a feature map over the square from -1 to 1.

    Columns are x from -1 to 1, rows are y from 1 to -1.
    """
    line = torch.linspace(-1, 1, points, dtype=torch.float64)
    plane = torch.stack(torch.meshgrid(line.flip(0), line, indexing="ij")[::-1], dim=-1)
    return feature_map(name, 2).eval()(plane).detach().movedim(-1, 0)


def surfaces_picture(heights: Tensor) -> Tensor:
    """Surfaces in a row as bytes `[4, height, width]`: blue above 0, orange below 0, strong for large values."""
    share = heights / heights.abs().amax().clamp(min=1e-30)
    framed = torch.nn.functional.pad(share, (1, 1, 1, 1), value=0.1)
    padded = torch.nn.functional.pad(framed, (1, 1, 1, 1))
    return _coloured(torch.cat([*padded], dim=-1), pixels=3)


def _feature_maps(pictures: Path) -> Iterator[str]:
    yield "## Feature maps"
    yield (
        "Each picture shows a feature map without random directions, for keys with two components: one square per "
        "component of phi(x), over x from -1 to 1. DPFP-1 is Figure 1 of Schlag et al. 2021: every key has a single "
        "component above 0, so that keys of different quadrants are orthogonal."
    )
    for name in (*FEATURE_MAPS.names(), "dpfp-2"):
        if hasattr(feature_map(name, 2), "function"):
            pictures.joinpath(f"map-{name}.png").write_bytes(png(surfaces_picture(surfaces(name)).numpy()))
            caption = f"{name}: the components of phi(x), over the first (to the right) and the second component of x."
            yield figure(f"pictures/map-{name}.png", f"Components of {name} over the plane", caption)


class _Scan(torch.nn.Module):
    def forward(self, cell: Cell, arguments: Any) -> Any:
        return scan(cell, **arguments._asdict(), backend="reference")


def contents(cell: Cell) -> MemoryTrace:
    """Trace of a cell with one head on the sequence of the gallery."""
    torch.manual_seed(0)
    model = _Scan()
    with record_scans(model) as scans, torch.no_grad():
        model(cell, _arguments(cell))
    return analyze(scans[0])


def _arguments(cell: Cell) -> Any:
    """Sample arguments with the keys of the sequence, write rates of 1, and no state."""
    T = len(WRITTEN)
    sample = scan_checks.arguments(cell, Shape(1, T, 1, SIZE, SIZE), torch.float32)
    full = {"rate": 1.0, "decay": 0.95}

    def put(name: str, x: Tensor) -> Tensor:
        role = cell.slots["Inputs"][name].kind
        if role == "key" and x.shape[-1] == SIZE:
            letters = [ord(letter) - ord("a") for letter in (QUERIED if name == "q" else WRITTEN)]
            return torch.eye(SIZE)[letters].reshape(1, T, 1, *[1] * (x.ndim - 4), SIZE).expand_as(x)
        return torch.full_like(x, full[role]) if role in full and name not in RANDOM else x

    inputs = type(sample.inputs)(**{name: put(name, x) for name, x in sample.inputs._asdict().items()})
    return sample._replace(inputs=inputs, state=None, reset=None)


def picture(trace: MemoryTrace) -> Tensor:
    """Attention map of the first head in the colours of the page, bytes `[4, height, width]`."""
    return _coloured(trace.attention[0] / trace.attention[0].abs().amax().clamp(min=1e-30), PIXELS)


def _coloured(share: Tensor, pixels: int) -> Tensor:
    """Numbers from -1 to 1 as colours with opacity, bytes `[4, height, width]`."""
    plus, minus = (torch.tensor(rgb(colour)) for colour in LIGHT.series[:2])
    ink = torch.where(share[..., None] < 0, minus, plus)
    opacity = 255 * share.abs().clamp(max=1).sqrt()[..., None]
    large = torch.cat([ink, opacity], dim=-1).permute(2, 0, 1).repeat_interleave(pixels, 1).repeat_interleave(pixels, 2)
    return large.round().to(torch.uint8)
