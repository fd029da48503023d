"""Loop nests that are the same but for what they read and write: one function for all of them.

The steps of an inner loop, such as conjugate gradients, are unrolled where a cell is traced. Here they meet again: the
compiler of the system sees each of their nests once, and the step calls it as often as the loop goes round.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fastweights.compiler.targets.cpp.loops import Emitted
from fastweights.compiler.targets.cpp.schedule import Program

OFTEN = 4
"""How often a nest must come for it to be a function: a call hides from the compiler what lies in registers."""
LONG = 8
"""Lines that it has at least."""


class Shared(NamedTuple):
    """Functions, and the lines of the step that calls them."""

    functions: list[str]
    lines: list[str]


class _Nest(NamedTuple):
    """Its text with numbers in the place of what it reads and writes, these, and what that is, in order."""

    text: str
    places: tuple[str, ...]
    names: tuple[str, ...]


def shared(name: str, program: Program, nests: Sequence[Emitted]) -> Shared:
    """The nests of the step of this name, those that come often as calls."""
    is_scalar = {b.name: b.is_scalar for b in program.buffers.values()}
    found = [_numbered(nest, is_scalar) for nest in nests]
    counts = Counter((nest.text, nest.places) for nest in found)
    often = [kind for kind, count in counts.items() if count >= OFTEN and kind[0].count("\n") >= LONG]
    called = {text: f"{name}_nest_{n}" for n, (text, _) in enumerate(often)}
    lines = []
    for nest, of_nest in zip(nests, found, strict=True):
        call = called.get(of_nest.text)
        lines += [*nest.comments, *(nest.lines if call is None else [f"    {call}({', '.join(of_nest.names)});"])]
    return Shared([_function(called[text], text, places) for text, places in often], lines)


def _numbered(nest: Emitted, is_scalar: Mapping[str, bool]) -> _Nest:
    """With `m0`, `m1`, ... for memory, and `s2`, ... for variables."""
    places: dict[str, str] = {}

    def place(match: re.Match[str]) -> str:
        word = match[0]
        if word not in is_scalar:
            return word
        return places.setdefault(word, f"{'s' if is_scalar[word] else 'm'}{len(places)}")

    text = re.sub(r"\b[A-Za-z_]\w*", place, "\n".join(nest.lines))
    return _Nest(text, tuple(places.values()), tuple(places))


def _function(name: str, text: str, places: Sequence[str]) -> str:
    """Memory is told apart by what is stored there; nothing of it overlaps."""
    taken = [_taken(place, text) for place in places]
    return f"\n__attribute__((noinline)) static void {name}({', '.join(taken)}) {{\n{text}\n}}"


def _taken(place: str, text: str) -> str:
    if place[0] == "s":
        return f"real& {place}" if re.search(rf"\b{place} = ", text) else f"const real {place}"
    stored = re.search(rf"(store<\d+>|scatter<\d+>)\({place}\b|\*\({place}\b[^)]*\) = |\b{place}\[n\] = ", text)
    return f"{'' if stored else 'const '}real* __restrict__ {place}"
