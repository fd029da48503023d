"""The gallery of the site: what every cell does with the same little stream, as pictures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastweights import Cell, scan
from fastweights.inspect import MemoryTrace, analyze, record_scans
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
        found = contents(Cell.from_name(name))
        pictures.joinpath(f"cell-{name}.png").write_bytes(png(picture(found).numpy()))
        formula = Cell.from_name(name).summary.strip().partition("\n")[0]
        yield f"## [{name}](cells/{name}.md)"
        yield f"    {formula}"
        yield f"![What reads of {name} stem from](pictures/cell-{name}.png)"


class _Scan(torch.nn.Module):
    def forward(self, cell: Cell, given: Any) -> Any:
        return scan(cell, *given, backend="reference")


def contents(cell: Cell) -> MemoryTrace:
    """What a cell does with the stream, in one head."""
    torch.manual_seed(0)
    model = _Scan()
    with record_scans(model) as scans, torch.no_grad():
        model(cell, _given(cell))
    return analyze(scans[0])


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


def picture(found: MemoryTrace) -> Tensor:
    """The attention map of the first head in the page's colours, bytes `[3, height, width]`."""
    share = found.attention[0] / found.attention[0].abs().amax().clamp(min=1e-30)
    paper, plus, minus = (torch.tensor(rgb(colour)) for colour in (LIGHT.paper, *LIGHT.series[:2]))
    ink = torch.where(share[..., None] < 0, minus, plus)
    mixed = paper + share.abs().sqrt()[..., None] * (ink - paper)
    large = mixed.permute(2, 0, 1).repeat_interleave(PIXELS, 1).repeat_interleave(PIXELS, 2)
    return large.round().to(torch.uint8)
