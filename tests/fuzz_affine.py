"""Random cells that are mostly affine in their states: a backend equals the reference, or its error names a line.

    python tests/fuzz_affine.py --backend chunkwise --number 1000 --seed 0
    python tests/fuzz_affine.py --backend compiled --number 300 --seed 0
    python tests/fuzz_affine.py --backend triton --number 100 --seed 0

Cells have up to three states of up to four axes, with decays of every kind, delta rules, writes, flips, cumulative
sums, and several reads. Some states are added to each other, correct each other or are mixed along an axis. Some axes
are flattened. Some states delay vectors, and recurrent vectors read and write the other states. Calls have odd sizes,
resets, lengths, states and initial states. Outputs, final states and all gradients are compared. An error of
`chunkwise` names the line of the cell. "triton" runs the kernels in Triton's interpreter. `--only STREAM NUMBER` makes
one cell again.
"""

import linecache
import os
import re
import sys
from functools import cache, partial
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights import Cell
from fastweights.backends.chunkwise import chunkwise
from fastweights.call.scan_call import scan_call
from fastweights.call.tensors import Tensors
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_state
from fuzzing import Verdict, compared, parser, run

BACKENDS = ("chunkwise", "compiled", "triton")
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17)
TIMES = (1, 1, 2, 3, 5, 16, 17, 33, 37, 70)
SMALL_SIZES, SMALL_TIMES = (1, 2, 3, 4), (1, 2, 3, 5)
"""For an interpreter, which computes one number at a time."""

HEAD = """from typing import Annotated, NamedTuple
import torch
import torch.nn.functional as F
from torch import Tensor
from fastweights.signature import TensorSpec, Value
"""
INPUTS = {
    **dict.fromkeys(("q", "k", "r"), ("K", "key")),
    **dict.fromkeys(("v", "u"), ("V", "value")),
    "m": ("M", "rate"),
    "j": ("J", "rate"),
    "g": ("M", "value"),
    "beta": ("", "rate"),
    "a": ("", "value"),
    "d": ("", "decay"),
    "dk": ("K", "decay"),
    "dv": ("V", "decay"),
    "dm": ("M", "decay"),
    "mk": ("M K", "key"),
    "mv": ("M V", "value"),
    "mm": ("M M", "value"),
}
DELAYS = ["K", "V", "J K", "J V", "K J"]
VECTORS = {"K": ["x.q", "x.k", "x.r"], "V": ["x.v", "x.u"], "M": ["x.m", "x.g"]}
SCALARS = ["x.beta", "x.d", "x.a.tanh()", "0.5", "x.k.sum().tanh()"]
PAIRS = {("M", "K"): "x.mk", ("M", "V"): "x.mv"}
STATES = ["K", "V", "", "V K", "V K", "V K", "K V", "K K", "M K", "M V", "V K K", "V K K", "M V K", "M V K", "M K V"]
STATES += ["V M K", "V K V", "M V K K"]
CHANGES = [
    *("{x}", "{x}", "{x}", "{x}.flip(0)", "{x}.cumsum(0)", "{x}.roll(1, 0)", "{x}.tanh()", "0.5 * {x}", "{x} * {s}"),
    *("{x} * {y}", "{x} - 0.5 * {y}", "F.normalize({x}, dim=0)", "{x}.softmax(0)", "F.relu({x})"),
    *("torch.where({x} > 0.2, {x}, {y})", "{x}.flip(0).cumsum(0).flip(0)"),
]
"""Vectors computed from vectors x and y of one size and a number s."""


class Code:
    """Random code of a cell; equal seeds give equal code."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.states = {f"s{n}": random.choice(STATES).split() for n in range(random.choice([1, 1, 2, 2, 3]))}
        self.done: list[str] = []
        """The completed states, in order."""
        self.delays = {f"t{n}": random.choice(DELAYS).split() for n in range(random.choice([0, 0, 0, 1, 2]))}
        self.current = ""
        """The current delay: a vector that it delays does not depend on it."""
        self.delayed: list[str] = []
        """The completed delays, in order."""
        self.recurrent = {f"h{n}": random.choice(["K", "V"]).split() for n in range(random.choice([0, 0, 0, 0, 1, 2]))}
        self.looped: list[str] = []
        """The completed recurrent vectors, in order."""
        late = [name for name in self.delays if self.chance(0.3)]
        for name in self.delays:
            if name not in late:
                self._delay(name)
        for name in self.states:
            self._loop(list(self.recurrent), 0.4)
            self._update(name)
            self.done.append(name)
        self._loop(list(self.recurrent), 1.0)
        for name in late:
            self._delay(name)
        reads = [self.value() for _ in range(random.choice([1, 2, 2, 3]))]
        reads += [name for name, axes in self.recurrent.items() if axes == ["V"]]
        y = f"{' + '.join(reads)}"
        self.lines.append(f"y = {y}{random.choice(['', '', ' / (1 + x.beta)', ' * x.v.sigmoid()'])}")

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def number(self) -> str:
        return self.random.choice(SCALARS)

    def vector(self, letter: str, depth: int = 1) -> str:
        """A function of an input vector, or a vector read from an earlier state."""
        if depth and self.done and self.chance(0.15):
            name, after = self.random.choice(self.done), self.chance(0.5)
            if letter in self.states[name]:
                return f"({self.read(name, self.states[name].index(letter), after)}).tanh()"
        names = [name for name, axes in self.recurrent.items() if axes == [letter]]
        if depth and names and self.chance(0.25):
            name = self.random.choice(names)
            return name if name in self.looped and self.chance(0.6) else f"state.{name}.roll(1, 0)"
        if self.delays and self.chance(0.2) and (delayed := self.of_delay(letter)):
            return delayed
        if not depth:
            return self.random.choice(VECTORS[letter])
        x, y = (self.vector(letter, 0) for _ in range(2))
        return f"({self.random.choice(CHANGES).format(x=x, y=y, s=self.number())})"

    def of_delay(self, letter: str) -> str:
        """A vector from a state that delays vectors, before or after the step; empty if there is no such state."""
        names = [name for name, axes in self.delays.items() if letter in axes and name != self.current]
        if not names:
            return ""
        name = self.random.choice(names)
        of = name if name in self.delayed and self.chance(0.5) else f"state.{name}"
        axes = self.delays[name]
        if len(axes) == 1:
            return f"{of}.tanh()"
        along = axes.index("J")
        return self.random.choice([f"{of}.mean({along})", f"{of}.select({along}, 0)", f"{of}.sum({along}).tanh()"])

    def _delay(self, name: str) -> None:
        """A state that is a vector of the step, or a window of the last vectors that moves in either direction."""
        axes, old = self.delays[name], f"state.{name}"
        along = axes.index("J") if "J" in axes else None
        self.current = name
        new = self.vector(next(a for a in axes if a != "J"))
        self.current = ""
        if along is not None:
            size = f"{old}.shape[{along}] - 1"
            moves = [
                f"torch.cat([{old}.narrow({along}, 1, {size}), ({new}).unsqueeze({along})], {along})",
                f"torch.cat([({new}).unsqueeze({along}), 0.5 * {old}.narrow({along}, 0, {size})], {along})",
            ]
            new = self.random.choice(moves)
        self.lines.append(f"{name} = {new}")
        self.delayed.append(name)

    def _loop(self, names: list[str], p: float) -> None:
        """Adds the missing recurrent vectors, each with a probability."""
        for name in [name for name in names if name not in self.looped and self.chance(p)]:
            (letter,) = self.recurrent[name]
            decayed = self.random.choice(["0.5 * {}", "{}.flip(0)", "x.beta * {}", "{}.softmax(0)"])
            self.lines.append(f"{name} = ({decayed.format(f'state.{name}')} + {self.vector(letter)}).tanh()")
            self.looped.append(name)

    def key(self, letter: str) -> str:
        """A vector of length 1, so that erasing along it is stable."""
        x = self.random.choice(VECTORS[letter]) if self.chance(0.6) else self.vector(letter)
        return f"F.normalize({x}, dim=0)"

    def decay(self, axes: list[str]) -> str:
        """A decay with the axes of a state, as letters of einsum and code; empty for none."""
        places = range(len(axes))
        kind = self.random.choice(["none", "none", "number", "axis", "axis", "axes"])
        if kind == "none":
            return ""
        if kind == "number" or not axes:
            return self.random.choice(["x.d", "x.d", "0.9", "x.dk.mean()"])
        chosen = sorted(self.random.sample(places, 2 if kind == "axes" and len(axes) > 1 else 1))
        parts = [f"x.d{axes[a].lower()}[{', '.join(':' if b == a else 'None' for b in places)}]" for a in chosen]
        return " * ".join(parts)

    def _update(self, name: str) -> None:
        axes = self.states[name]
        old, letters = f"state.{name}", "abcd"[: len(axes)]
        if axes and self.chance(0.04):
            old = f"{old}.flip({self.random.randrange(len(axes))})"
        decay = self.decay(axes)
        self.lines.append(f"{name} = {f'({decay}) * {old}' if decay else old}")
        if "M" in axes and self.chance(0.3):
            self._mix(name, axes.index("M"), letters)
        if axes and self.chance(0.45):
            self._erase(name, axes, letters, self.random.choice([name, f"state.{name}"]))
        for other in [other for other, its in self.states.items() if other != name and its == axes]:
            if self.chance(0.35):
                self._couple(name, other, axes, letters)
        for _ in range(self.random.choice([1, 1, 2])):
            self.lines.append(f"{name} = {name} + {self.write(axes, letters)}")

    def _mix(self, name: str, along: int, letters: str) -> None:
        """Mixes the memories along an axis: by a matrix, or each memory with its predecessor."""
        m = letters[along]
        mixing = f'torch.einsum("{m}z,{letters.replace(m, "z")}->{letters}", x.mm.softmax(0) * x.d, {name})'
        halves = f"[0.5 * {name}.narrow({along}, 0, 1), {name}.narrow({along}, 0, {name}.shape[{along}] - 1)]"
        moved = [
            f"x.beta * {name}.roll(1, {along})",
            f"0.5 * torch.cat({halves}, {along})",
            f"0.5 * {name}.cumsum({along})",
        ]
        self.lines.append(f"{name} = {self.random.choice([mixing, f'0.5 * {name} + {self.random.choice(moved)}'])}")

    def _couple(self, name: str, other: str, axes: list[str], letters: str) -> None:
        """S <- S + number M, or S <- S - rate (M e) f^T, for another state M before or after the step."""
        of = other if other in self.done and self.chance(0.6) else f"state.{other}"
        if axes and self.chance(0.3):
            self._erase(name, axes, letters, of)
        else:
            self.lines.append(f"{name} = {name} + {self.random.choice(['', '0.5 * ', 'x.beta * ', 'x.d * '])}{of}")

    def _erase(self, name: str, axes: list[str], letters: str, of: str) -> None:
        """S <- S - rate (S e) f^T, with e and f over one axis or several, or separate e and f for every memory."""
        places = range(len(axes))
        over = [len(axes) - 1] if self.chance(0.7) else sorted(self.random.sample(places, min(2, len(axes))))
        rest = [a for a in places if a not in over]
        erase = [self.key(axes[a]) for a in over]
        keys = erase if self.chance(0.6) else [self.key(axes[a]) for a in over]
        at = ",".join(letters[a] for a in over)
        if rest and (axes[rest[0]], *(axes[a] for a in over)) == ("M", "K") and self.chance(0.5):
            erase, keys, at = ["x.mk"], ["x.mk"], letters[rest[0]] + letters[over[0]]
        left, rate = "".join(letters[a] for a in rest), self.random.choice(["x.beta", "x.beta", "0.5"])
        if rest and axes[rest[0]] == "M" and self.chance(0.3):
            rate = f"x.m[{', '.join([':', *['None'] * (len(rest) - 1)])}]"
        read = f'torch.einsum("{letters},{at}->{left}", {of}, {", ".join(erase)})'
        if at == "b" and self.chance(0.5):
            read = f"({of} @ {erase[0]})"
        self.lines.append(f"u{name} = {rate} * {read}")
        self.lines.append(f'{name} = {name} - torch.einsum("{left},{at}->{letters}", u{name}, {", ".join(keys)})')

    def write(self, axes: list[str], letters: str) -> str:
        """A product of vectors, one along each axis, or of a matrix of the inputs."""
        if not axes:
            return f"{self.number()} * {self.number()}"
        factors, at = [self.vector(a) for a in axes], list(letters)
        pairs = [(a, b) for a in range(len(axes)) for b in range(len(axes)) if (axes[a], axes[b]) in PAIRS]
        if pairs and self.chance(0.35):
            a, b = self.random.choice(pairs)
            others = [n for n in range(len(axes)) if n not in (a, b)]
            factors = [PAIRS[axes[a], axes[b]], *(factors[n] for n in others)]
            at = [letters[a] + letters[b], *(letters[n] for n in others)]
        scale = f"{self.number()} * " if self.chance(0.3) else ""
        if len(at) == len(axes) > 2 and self.chance(0.3):
            products = f'torch.einsum("{",".join(letters[1:])}->{letters[1:]}", {", ".join(factors[1:])})'
            sizes = ", ".join(f"{x}.shape[{n}]" for n, x in enumerate([products] * (len(axes) - 1)))
            return f"{scale}torch.outer({factors[0]}, {products}.flatten()).unflatten(1, ({sizes}))"
        if len(at) == 2 and len(axes) == 2 and self.chance(0.6):
            styles = ["torch.outer({}, {})", "{}[:, None] * {}", "{}.unsqueeze(1) * {}.unsqueeze(0)"]
            product = self.random.choice(styles).format(*factors)
            product = f"{product}.tanh()" if self.chance(0.03) else product
            return f"{scale}({product})"
        return f'{scale}torch.einsum("{",".join(at)}->{letters}", {", ".join(factors)})'

    def read(self, name: str, keep: int, after: bool) -> str:
        """A vector along one axis of a state: products with vectors over all other axes, at once or one by one."""
        axes, of = self.states[name], name if after else f"state.{name}"
        letters, over = "abcd"[: len(axes)], [a for a in range(len(axes)) if a != keep]
        self.random.shuffle(over)
        vectors = [self.vector(axes[a], 0) for a in over]
        if len(axes) == 2 and self.chance(0.6):
            (x,) = vectors
            return self.random.choice([f"{of}.T @ {x}", f"{x} @ {of}"] if keep else [f"{of} @ {x}", f"{x} @ {of}.T"])
        if len(over) > 1 and keep == 0 and self.chance(0.4):
            vectors = [x for _, x in sorted(zip(over, vectors, strict=True))]
            products = f'torch.einsum("{",".join(letters[1:])}->{letters[1:]}", {", ".join(vectors)})'
            return f"{of}.flatten(1) @ {products}.flatten()"
        if not over or self.chance(0.5):
            at = ",".join([letters, *(letters[a] for a in over)])
            return f'torch.einsum("{at}->{letters[keep]}", {", ".join([of, *vectors])})'
        for a, x in zip(over, vectors, strict=True):
            left = "".join(b for b in letters if b != "abcd"[a])
            of, letters = f'torch.einsum("{letters},{"abcd"[a]}->{left}", {of}, {x})', left
        return of

    def value(self) -> str:
        """A vector of the size of the output, from one read."""
        name, after = self.random.choice(list(self.states)), self.chance(0.7)
        axes, of = self.states[name], name if after else f"state.{name}"
        if not axes:
            return f"{of} * x.v"
        if len(axes) == 1 and self.chance(0.5):
            whole = f"({of} * {self.vector(axes[0])})"
            return whole if axes == ["V"] and self.chance(0.7) else f"{whole}.tanh().sum() * x.u"
        keep = axes.index("V") if "V" in axes and self.chance(0.9) else self.random.randrange(len(axes))
        read = self.read(name, keep, after)
        read = f"({read})" if axes[keep] == "V" else f"({read}).sum() * x.v"
        return f"({read}).tanh()" if self.chance(0.2) else read

    @property
    def text(self) -> str:
        """Python source of the cell."""
        slots = [
            f'    {name}: Annotated[Tensor, TensorSpec("{" ".join(axes)}", "memory")]'
            for name, axes in (self.states | self.delays | self.recurrent).items()
        ]
        body = [f"    {line}" for line in self.lines]
        # The first input of every letter has its size, also in a call without a state.
        used = {*re.findall(r"\bx\.(\w+)", "\n".join(body)), "q", "v", "m", "j"}
        inputs = [
            f'    {name}: Annotated[Tensor, TensorSpec("{axes}", "{role}")]'
            for name, (axes, role) in INPUTS.items()
            if name in used
        ]
        return "\n".join(
            [
                *(HEAD, "class State(NamedTuple):", *slots, "", "class Inputs(NamedTuple):", *inputs, ""),
                *("def step(state: State, x: Inputs) -> tuple[State, Value]:", *body),
                f"    return State({', '.join(self.states | self.delays | self.recurrent)}), y",
                "",
            ]
        )


class RandomCell(NamedTuple):
    """A random cell with its arguments and its source."""

    cell: Cell
    arguments: scan_checks.Arguments
    dtype: torch.dtype
    text: str
    file: str

    def outcome(self, arguments: scan_checks.Arguments, backend: str) -> list[Tensor]:
        """Results and all gradients."""
        return list(scan_checks.results_and_gradients(self.cell, backend, arguments).values())


def make(seed: int, stream: int, number: int, backend: str) -> RandomCell:
    """One cell, with arguments of random sizes."""
    random = Random(f"{seed} {stream} {number}")
    text, file = Code(random).text, f"cell_{seed}_{stream}_{number}.py"
    namespace: dict[str, Any] = {"__name__": "fuzzed"}
    exec(compile(text, file, "exec"), namespace)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    cell = Cell.from_function(namespace["step"])
    sizes, times = (SMALL_SIZES, SMALL_TIMES) if backend == "triton" else (SIZES, TIMES)
    shape = Shape(*(random.choice(x) for x in ((1, 2, 3), times, (1, 2, 3), sizes, sizes)))
    dtype = random.choice([torch.float64, torch.float64, torch.float64, torch.float32])
    a = scan_checks.arguments(cell, shape)
    a = a._replace(reset=a.reset if random.random() < 0.5 else None)
    if random.random() < 0.3:
        a = a._replace(lengths=torch.tensor([random.randint(0, shape.T) for _ in range(shape.B)]))
    if random.random() < 0.4:
        a = a._replace(initial_state=type(a.state)(*(x[0] for x in sample_state(cell, shape, seed=5))))
    if random.random() < 0.3:
        a = a._replace(state=None)
    names = ", ".join(name for name, value in a._asdict().items() if value is not None)
    return RandomCell(cell, a.to(dtype), dtype, f"# {shape}, {dtype}, with {names}\n{text}", file)


def verdict_on(seed: int, stream: int, number: int, backend: str) -> tuple[Verdict, str]:
    """The verdict on a cell."""
    if backend == "triton":
        _interpret()
    made = make(seed, stream, number, backend)
    verdict = compared(made, "compiled" if backend == "triton" else backend)
    if backend == "chunkwise" and verdict.kind in ("equal", "refused"):
        verdict = explained(made) or verdict
    return verdict, made.text


def explained(made: RandomCell) -> Verdict | None:
    """A verdict on the output of `explain` if it is neither the form nor a reason with a line of the cell."""
    a = made.arguments
    description = chunkwise.describe(scan_call(made.cell, Tensors(*a)))
    is_line = "\n" not in description and (" <- " in description or f"in {made.file}:" in description)
    return None if is_line else Verdict("raw", f"explain prints {description!r}")


@cache
def _interpret() -> None:
    from interpreted import interpret

    interpret()


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--backend", choices=BACKENDS, default="chunkwise", help="Backend to compare.")
    options = arguments.parse_args()
    if options.backend == "triton":
        os.environ["TRITON_INTERPRET"] = "1"
    sys.exit(run(partial(verdict_on, backend=options.backend), options))
