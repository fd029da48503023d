"""The gallery of the site: every cell on the same short stream, and every feature map over a plane, as pictures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastweights import Cell, scan
from fastweights.inspect import Contents, look_into, watch
from fastweights.layers.base.slow_net import feature_map
from fastweights.registry import FEATURE_MAPS
from fastweights.report.palette import LIGHT, rgb
from fastweights.report.png import png
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape

WRITTEN, ASKED = "abcdabcdaabbccdd", "aabbccddabcdabcd"
"""The letter whose key is bound at every step, to a new value, and the one whose key is asked for."""
SIZE = 8
PIXELS = 8
"""Of a step, on every side."""


def write(source: Path) -> None:
    """The page, and a picture for every cell."""
    (source / "pictures").mkdir(exist_ok=True)
    source.joinpath("gallery.md").write_text("\n\n".join(_page(source / "pictures")) + "\n", encoding="utf-8")


def _page(pictures: Path) -> Iterator[str]:
    yield "# Gallery"
    yield (
        f"Every cell reads the same stream of {len(WRITTEN)} steps: the keys of the letters `{WRITTEN}` are bound to "
        f"new values, and after each step one of `{ASKED}` is asked for. A picture shows what each read (a row, from "
        "above) stems from (a column): blue adds, orange takes away, strong colours are the strongest of the picture. "
        "A sum keeps all that was ever bound to a letter; the delta rule what was bound last. Cells that make their "
        "keys themselves see random vectors through random slow weights; there, pictures show how much a read changes "
        "with each step."
    )
    for name in Cell.names():
        found = contents(Cell.named(name))
        pictures.joinpath(f"cell-{name}.png").write_bytes(png(picture(found).numpy()))
        formula = Cell.named(name).summary.strip().partition("\n")[0]
        yield f"## [{name}](cells/{name}.md)"
        yield f"    {formula}"
        yield f"![What reads of {name} stem from](pictures/cell-{name}.png)"
    yield from _feature_maps(pictures)


def surfaces(name: str, points: int = 41) -> Tensor:
    """Components `[output_size, points, points]` of a feature map over the square from -1 to 1: rows from above are y
    from 1 down, columns are x."""
    line = torch.linspace(-1, 1, points, dtype=torch.float64)
    plane = torch.stack(torch.meshgrid(line.flip(0), line, indexing="ij")[::-1], dim=-1)
    return feature_map(name, 2).eval()(plane).detach().movedim(-1, 0)


def surfaces_picture(heights: Tensor) -> Tensor:
    """Surfaces side by side as bytes `[3, height, width]`: blue above 0, orange below it, strong where they are far."""
    share = heights / heights.abs().amax().clamp(min=1e-30)
    framed = torch.nn.functional.pad(share, (1, 1, 1, 1), value=0.1)
    padded = torch.nn.functional.pad(framed, (1, 1, 1, 1))
    return _coloured(torch.cat([*padded], dim=-1), pixels=3)


def _feature_maps(pictures: Path) -> Iterator[str]:
    yield "## Feature maps"
    yield (
        "Each picture shows a feature map of keys with two numbers, as far as it has no random directions: one square "
        "for each component of phi(x), over x from -1 to 1. DPFP-1 is Figure 1 of Schlag et al. 2021: every key has a "
        "single component above 0, so that keys of different quadrants are orthogonal."
    )
    for name in (*FEATURE_MAPS.names(), "dpfp-2"):
        if hasattr(feature_map(name, 2), "function"):
            pictures.joinpath(f"map-{name}.png").write_bytes(png(surfaces_picture(surfaces(name)).numpy()))
            yield f"### {name}"
            yield f"![Components of {name} over the plane](pictures/map-{name}.png)"


class _Scan(torch.nn.Module):
    def forward(self, cell: Cell, given: Any) -> Any:
        return scan(cell, *given, backend="reference")


def contents(cell: Cell) -> Contents:
    """What a cell does with the stream, in one head."""
    torch.manual_seed(0)
    model = _Scan()
    with watch(model) as scans, torch.no_grad():
        model(cell, _given(cell))
    return look_into(scans[0])


def _given(cell: Cell) -> Any:
    """A sample of the contract's, with this stream's keys, rates that write fully, and an empty memory."""
    T = len(WRITTEN)
    sample = scan_checks.arguments(cell, Shape(1, T, 1, SIZE, SIZE), torch.float32)
    full = {"rate": 1.0, "decay": 0.95}

    def put(name: str, x: Tensor) -> Tensor:
        role = cell.slots["Inputs"][name].kind
        if role == "key" and x.shape[-1] == SIZE:
            letters = [ord(letter) - ord("a") for letter in (ASKED if name == "q" else WRITTEN)]
            return torch.eye(SIZE)[letters].reshape(1, T, 1, *[1] * (x.ndim - 4), SIZE).expand_as(x)
        return torch.full_like(x, full[role]) if role in ("rate", "decay") else x

    inputs = type(sample.inputs)(**{name: put(name, x) for name, x in sample.inputs._asdict().items()})
    return sample._replace(inputs=inputs, state=None, reset=None)


def picture(found: Contents) -> Tensor:
    """The attention map of the first head in the page's colours, bytes `[3, height, width]`."""
    return _coloured(found.attention[0] / found.attention[0].abs().amax().clamp(min=1e-30), PIXELS)


def _coloured(share: Tensor, pixels: int) -> Tensor:
    """Numbers from -1 to 1 as colours."""
    paper, plus, minus = (torch.tensor(rgb(colour)) for colour in (LIGHT.paper, *LIGHT.series[:2]))
    ink = torch.where(share[..., None] < 0, minus, plus)
    mixed = paper + share.abs().sqrt()[..., None] * (ink - paper)
    large = mixed.permute(2, 0, 1).repeat_interleave(pixels, 1).repeat_interleave(pixels, 2)
    return large.round().to(torch.uint8)
