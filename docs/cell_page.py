"""The page of a cell: formula, paper, example, abilities, parameters of its layer, and the tensors of a step."""

import inspect
import re
from functools import cache
from math import prod
from typing import Any

import torch
from latex import latex

from fastweights.cell import Cell
from fastweights.compiler import pipeline
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.specialise.specialisations import affine_of
from fastweights.core.docstrings import arguments
from fastweights.layers import FastWeight, layer_options
from fastweights.registry import ABILITIES, LAYERS, describe
from fastweights.signature import TensorSpec, size
from fastweights.testing.samples import OWN

PAPERS = {
    re.compile(r"https://[^\s);,]+"): r"<\g<0>>",
    re.compile(r"arXiv:(\d{4}\.\d{4,5})"): r"[arXiv:\1](https://arxiv.org/abs/\1)",
    re.compile(r"doi:(10\.[^\s);,]+)"): r"[doi:\1](https://doi.org/\1)",
}
LAYER_NAMES = {"delta": "delta-net"}
"""Layers whose names differ from those of their cells."""
D_MODEL, HEADS, STEPS = 16, 2, 5


def cell_page(name: str) -> str:
    """The page of a cell."""
    cell, layer = Cell.from_name(name), LAYER_NAMES.get(name, name)
    docstring = inspect.cleandoc(cell.summary)
    described = describe(docstring)
    parts = [
        f"# {name}",
        described.summary,
        f"$$\n{latex(described.formula)}\n$$",
        *explanation(docstring),
        f"**Paper.** {linked(described.source)}",
        f'**Layer.** `make_layer("{layer}", ...)` returns `{layer_class(layer).__name__}`.',
        example(layer),
        "**Abilities.**",
        abilities(name, described.abilities),
        "**Parameters of the layer.**",
        parameters(layer, cell),
        f"**State.** {floats(cell)} per head.",
        table(cell.slots["State"]),
        "**Inputs** per time step and head, which the slow network computes.",
        table(cell.slots["Inputs"]),
        *([] if cell.Params is None else ["**Slow weights** inside the step, per head.", table(cell.slots["Params"])]),
        f"**Output.** `[{axes(cell.output)}]` per time step and head.",
        f"**Backends.** {', '.join(backends(cell))}.",
        f"**Command line.** Train it with `fastweights train char-lm --layer {layer}`. Run its correctness tests with "
        f"`fastweights check {name}`.",
    ]
    return "\n\n".join(parts) + "\n"


def explanation(docstring: str) -> list[str]:
    """The paragraphs of a docstring between the formula and its marked paragraphs."""
    marked = ("Source:", "Can:", "Args:", "Returns:", "Raises:", "Example:")
    return [block for block in docstring.split("\n\n")[2:] if not block.startswith(marked)]


def linked(source: str) -> str:
    """A source with links to its papers."""
    for number, link in PAPERS.items():
        source = number.sub(link, source)
    return source


def layer_class(layer: str) -> Any:
    """The class of a layer."""
    return LAYERS.load(layer) if layer in LAYERS.names() else FastWeight


def example(layer: str) -> str:
    """Code that creates and calls a layer."""
    lines = [
        ">>> import torch",
        ">>> from fastweights import make_layer",
        f'>>> layer = make_layer("{layer}", d_model={D_MODEL}, num_heads={HEADS})',
        f">>> y, state = layer(torch.randn(1, {STEPS}, {D_MODEL}))  # [batch, time, features]",
        ">>> y.shape",
        f"torch.Size([1, {STEPS}, {D_MODEL}])",
    ]
    return "```python\n" + "\n".join(lines) + "\n\n```"


def abilities(name: str, can: tuple[str, ...]) -> str:
    """Table of the abilities of a cell, with their meanings."""
    rows = [
        f"| {ability} | {'yes' if ability in can else 'no'} | {meaning} |" for ability, meaning in ABILITIES.items()
    ]
    return "\n".join([f"| ability | {name} | meaning |", "|---|---|---|", *rows])


def parameters(layer: str, cell: Cell) -> str:
    """Table of the parameters of a layer: names, defaults and descriptions."""
    kind = layer_class(layer)
    words, options = arguments(kind.__doc__ or ""), layer_options(layer) | {"d_model"}
    if kind is FastWeight:
        options -= {"cell", *unused(cell)}
    shown = [p for p in inspect.signature(kind).parameters.values() if p.name in options]
    rows = [f"| `{p.name}` | {default(p)} | {words[p.name]} |" for p in shown]
    return "\n".join(["| parameter | default | description |", "|---|---|---|", *rows])


def unused(cell: Cell) -> set[str]:
    """Parameters of `FastWeight` that do not apply to a cell."""
    letters = {c for record in cell.slots.values() for slot in record.values() for c in slot.axes if c.isalpha()}
    kinds = {slot.kind for record in cell.slots.values() for slot in record.values()}
    no_sizes = set() if letters - {"K", "V"} else {"sizes"}
    return no_sizes | (set() if "constant" in kinds else {"constants"})


def default(parameter: inspect.Parameter) -> str:
    """The default of a parameter."""
    return "required" if parameter.default is parameter.empty else f"`{parameter.default!r}`"


def backends(cell: Cell) -> list[str]:
    """Backends that can run a cell on a machine with a C++ compiler. No kernel is built."""
    return ["chunkwise"] * bool(affine(cell.key)) + ["compiled"] * compiles(cell) + ["reference"]


def compiles(cell: Cell) -> bool:
    """Whether the compiler supports the step of a cell."""
    try:
        pipeline.passes(cell, cell.example_sizes, torch.float32)
    except Unsupported:
        return False
    return True


@cache
def affine(key: str) -> str:
    """The affine form of the step of the cell with a key; empty if it has none."""
    cell = Cell.of_key(key)
    form = affine_of(key, tuple(cell.example_sizes.items()), torch.float32)
    return "" if isinstance(form, str) else str(form)


def table(slots: dict[str, TensorSpec]) -> str:
    """Table of tensors: names, axes and roles."""
    rows = [f"| `{name}` | `[{axes(slot)}]` | {slot.role} |" for name, slot in slots.items()]
    return "\n".join(["| name | axes | role |", "|---|---|---|", *rows])


def axes(slot: TensorSpec) -> str:
    """The axes of a tensor, such as `V, K`."""
    return ", ".join(slot.axes.split())


def floats(cell: Cell) -> str:
    """Size of the state per head as an expression, such as `V K + K`, and as a number."""
    terms = [" ".join(slot.axes.split()).replace("*", " ") or "1" for slot in cell.slots["State"].values()]
    grouped = [f"({t})" if "+" in t else t for t in terms]
    numbers = {**OWN, "K": 16, "V": 16, "R": 16}
    total = sum(prod([size(axis, numbers) for axis in slot.axes.split()]) for slot in cell.slots["State"].values())
    letters = sorted({c for slot in cell.slots["State"].values() for c in slot.axes if c.isalpha()})
    where = ", ".join(f"{letter} = {numbers[letter]}" for letter in letters)
    return f"{' + '.join(grouped)} numbers ({total:,} for {where})" if letters else f"{total:,} numbers"
