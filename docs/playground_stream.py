"""A page of the site with one memory: a stream of keys and values, written by any rule of the library.

The compiler writes every rule as C, as `fastweights compile RULE --size K=8 V=8` does. zig builds all of them as one
WebAssembly program. Every key queries the memory after every step: head n of the cell has the query n.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from playground_build import built, filled, formula, text_of

from fastweights import Cell
from fastweights.compiler.pipeline import write as write_cell
from fastweights.registry import RULES, describe
from fastweights.signature import TensorSpec

PAGE = "memory.html"
"""Name of the page in the site."""
SIZE = 8
"""Number of keys, of values, and of components of each."""
SIZES = {"K": SIZE, "V": SIZE}
NAMES = (*RULES.names(), "linear-attention")
"""The cells of the page: all rules of the library, and linear attention. To add a cell, add its name here."""
FIRST = "delta"
"""The rule that the page shows first."""
OVERLAP = 0.5
"""Share of the next key in an overlapping key, before normalisation."""
STREAM = "a1 b2 c3 d4 a5 b6"


class Field(NamedTuple):
    """A tensor of a cell for all heads, in the memory of the program.

    Args:
        kind: Record of the cell: "Inputs", "State", or "y" for the output.
        name: Name in the record.
        role: Role of the tensor, such as "key".
        place: Index of its first number.
        size: Numbers per head.
    """

    kind: str
    name: str
    role: str
    place: int
    size: int


def html() -> str:
    """The page."""
    fields = {name: list(fields_of(Cell.from_name(name))) for name in NAMES}
    with TemporaryDirectory() as folder:
        program = built(Path(folder), sources(Path(folder), fields))
    cells = [description(name, fields[name]) for name in NAMES]
    parts = {"cells": json.dumps(cells), "keys": json.dumps(keys()), "program": text_of(program)}
    return filled("memory.html", {**parts, "first": FIRST, "stream": STREAM})


def keys() -> dict[str, list[list[float]]]:
    """The vectors of all letters, by the kind of the keys."""
    apart = torch.eye(SIZE)
    overlapping = torch.nn.functional.normalize(apart + OVERLAP * apart.roll(1, dims=1), dim=1)
    return {"orthogonal": apart.tolist(), "overlapping": overlapping.tolist()}


def fields_of(cell: Cell) -> Iterator[Field]:
    """The inputs, the state and the output of a cell with one head per query."""
    place = 0
    slots = [(kind, name, slot) for kind in ("Inputs", "State") for name, slot in cell.slots[kind].items()]
    for kind, name, slot in [*slots, ("y", "y", cell.output)]:
        size = size_of(slot)
        yield Field(kind, name, slot.kind, place, size)
        place += SIZE * size


def size_of(slot: TensorSpec) -> int:
    """The number of elements of a tensor."""
    return int(torch.Size(slot.shape(SIZES)).numel())


def description(name: str, fields: list[Field]) -> dict[str, Any]:
    """The texts of a cell on the page, and the places of its tensors."""
    about = describe(Cell.from_name(name).summary)
    return {
        "name": name,
        "summary": about.summary,
        "formula": formula(about.formula),
        "fields": [field._asdict() for field in fields],
    }


def sources(folder: Path, cells: dict[str, list[Field]]) -> list[str]:
    """Writes the C++ files of all cells, and of the functions that the page calls. Returns their names."""
    for name in cells:
        write_cell(Cell.from_name(name), SIZES, torch.float32, folder)
    (folder / "page.cpp").write_text("\n".join(glue(name, fields) for name, fields in cells.items()))
    return [*(f"{name.replace('-', '_')}.cpp" for name in cells), "page.cpp"]


def glue(name: str, fields: list[Field]) -> str:
    """The C++ functions of a cell for the page: the address of its numbers, and one step."""
    c_name = name.replace("-", "_")
    of_kind = {kind: [f"all + {f.place}" for f in fields if f.kind == kind] for kind in ("State", "Inputs", "y")}
    size = fields[-1].place + SIZE * fields[-1].size
    return f"""#include "{c_name}.h"
namespace in_{c_name} {{
float all[{size}];
extern "C" __attribute__((export_name("{c_name}_at"))) float* {c_name}_at() {{ return all; }}
extern "C" __attribute__((export_name("{c_name}_step"))) void {c_name}_step() {{
    const {c_name}_state state = {{{", ".join(of_kind["State"])}}};
    const {c_name}_inputs x = {{{", ".join(of_kind["Inputs"])}}};
    {c_name}_run(&state, &x, {of_kind["y"][0]}, 1, 1, {SIZE});
}}
}}
"""
