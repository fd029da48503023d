"""Prints the kernels of a cell in Triton. A program runs all time steps of a head, or of some rows of a head.

The forward kernel stores the state every C steps. For each chunk, the backward kernel runs the steps again from that
state, stores the state before every step, and then computes the gradients in reverse order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from fastweights.compiler.ir.nodes import ConstantTensor, Node, Value, behind, volume
from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.ir.step import Step
from fastweights.compiler.targets.arguments import BACKWARD, FORWARD, Argument, names
from fastweights.compiler.targets.triton.access_patterns import in_memory, padded
from fastweights.compiler.targets.triton.body import Axis, Body, Domain, Given, load, store, zeros
from fastweights.compiler.targets.triton.partition import PART, Cut, cut

REAL = {torch.float32: "tl.float32", torch.float64: "tl.float64"}
FLAGS = ("KEEP", "RESET", "LENGTHS")
SIZES = ("T", "H", "C")
WARP = 1024
"""Number of state elements that one warp holds in 32 registers per thread."""
FULL = 128
"""Number of programs that occupy a chip: about one per multiprocessor."""
LEAST = 4
"""Smallest number of rows of a program. Every program repeats the work that all rows share."""
HEAD = """import triton
import triton.language as tl
from triton.language.extra import libdevice

from fastweights.compiler.targets.triton import intrinsics as fw
"""


@dataclass(frozen=True, eq=False)
class TritonSource:
    """Prints the two kernels of a step. With a partition, a program has `rows` rows of a head."""

    step: Step
    title: str
    dtype: torch.dtype
    cut: Cut | None = None
    rows: int = 0

    @cached_property
    def text(self) -> str:
        """The source text of a module."""
        kernels = [self._kernel("forward", self._forward_lines()), self._kernel("backward", self._backward_lines())]
        return "\n\n".join([f'"""{self.title}."""\n\n{HEAD}', *kernels])

    @cached_property
    def forward(self) -> list[str]:
        """The arguments of the forward kernel, in order."""
        return [*self._all(FORWARD), "memory", "tables"]

    @cached_property
    def backward(self) -> list[str]:
        """The arguments of the backward kernel, in order."""
        return [*self._all(BACKWARD), "states", "memory", "tables"]

    def _all(self, arguments: Sequence[Argument]) -> list[str]:
        fields = {"Inputs": list(self.step.inputs), "State": list(self.step.state), "Params": list(self.step.params)}
        return [name for argument in arguments for name in names(argument, fields)]

    @property
    def strides(self) -> list[str]:
        """The names of the strides of every input over batch, time and heads."""
        return [f"{axis}_stride_{name}" for name in self.step.inputs for axis in "bth"]

    def parameters(self, kernel: str) -> list[str]:
        """All parameters of a kernel, in order."""
        return [*getattr(self, kernel), *self.strides, *SIZES, *FLAGS]

    @property
    def cuts(self) -> int:
        """Number of programs per head."""
        return -(-self.cut.size // self.rows) if self.cut else 1

    @cached_property
    def memory(self) -> int:
        """Number of elements that a program keeps in memory within a step."""
        return sum(d.size for d in self._out_of_order)

    @property
    def states(self) -> int:
        """Number of state elements per step that the backward kernel stores for all programs of a head."""
        return sum(d.size * self._copies(name) for name, d in self.step.state.items())

    @cached_property
    def numbers(self) -> list[float]:
        """The numbers of all constant tensors, one after the other."""
        return [n for d in self._tables for n in d.numbers]

    def is_part(self, value: Value) -> bool:
        """Whether each program has a part of a sum. The part of a value that all programs have is in the first one."""
        return self.cut is not None and not isinstance(self.cut.kind(value), int)

    def is_private(self, name: str) -> bool:
        """Whether every program of a divided head has all of a tensor of the state."""
        return self.cut is not None and self.cut.leaves[name] is None

    def _copies(self, name: str) -> int:
        return self.cuts if self.is_private(name) else 1

    @cached_property
    def _everything(self) -> list[Node]:
        return sorted(behind(self.step.results), key=lambda d: d.serial)

    @cached_property
    def _tables(self) -> list[ConstantTensor]:
        return [d for d in self._everything if isinstance(d, ConstantTensor)]

    @cached_property
    def _out_of_order(self) -> list[Node]:
        there = {*self.step.inputs.values(), *self.step.params.values(), *self._tables, self.step.d_y}
        return sorted(in_memory(self.step.results, there), key=lambda d: d.serial)

    @cached_property
    def _places(self) -> dict[Node, int]:
        places, offset = dict[Node, int](), 0
        for node in self._out_of_order:
            places[node] = offset
            offset += node.size
        return places

    def _axis(self, name: str) -> Axis:
        """The axis along which a tensor of the state is divided."""
        return self.cut.leaves[name] if self.cut else None

    def _domain(self, shape: Sequence[int], axis: Axis = None) -> Domain:
        return Domain(tuple(shape), axis, self.rows)

    def _leaf(self, name: str) -> Domain:
        return self._domain(self.step.state[name].shape, self._axis(name))

    # The code of a step ---------------------------------------------------------------------------------------------

    def _fixed(self) -> dict[Node, Given]:
        """The params and the constant tensors."""
        given: dict[Node, Given] = {
            d: Given(f"p_{n}", f"all_param_{n} + h * {d.size}") for n, d in self.step.params.items()
        }
        offset = 0
        for n, table in enumerate(self._tables):
            given[table] = Given(f"c_{n}", f"tables + {offset}")
            offset += table.size
        return given

    def _moving(self) -> dict[Node, Given]:
        """The inputs of a step."""
        return {
            d: Given(f"x_{n}", f"all_in_{n} + b * b_stride_{n} + {{t}} * t_stride_{n} + h * h_stride_{n}")
            for n, d in self.step.inputs.items()
        }

    def _body(self, given: dict[Node, Given]) -> Body:
        return Body(given, self._places, self.cut, self.rows)

    def _forward_body(self, with_y: bool) -> Body:
        state: dict[Node, Given] = {d: Given(f"s_{n}") for n, d in self.step.state.items()}
        body = self._body(state | self._moving() | self._fixed())
        for name, value in self.step.new_state.items():
            body.put(f"n_{name}", value, self._axis(name))
        if with_y:
            kind = self.cut.kind(self.step.y) if self.cut else None
            axis = kind if isinstance(kind, int) else None
            body.put("y", self.step.y, axis)
            condition = ["first"] if self.cut and axis is None else []
            pointer = self._at("all_y", self.step.y.shape).format(t="t")
            body.lines.append(store(pointer, "y", self._domain(self.step.y.shape, axis), *condition))
        body.close()
        return body

    def _backward_body(self) -> Body:
        given: dict[Node, Given] = {d: Given(f"s_{n}", self._stored(n)) for n, d in self.step.state.items()}
        given |= {d: Given(f"g_{n}") for n, d in self.step.d_state.items()}
        given |= {self.step.d_y: Given("g", self._at("all_d_y", self.step.d_y.shape))}
        body = self._body(given | self._moving() | self._fixed())
        for name, value in self.step.gradients["inputs"].items():
            self._put_gradient(body, f"d_{name}", value)
            pointer = self._at(f"all_d_in_{name}", value.shape, self.is_part(value)).format(t="t")
            body.lines.append(store(pointer, f"d_{name}", self._domain(value.shape, self._rows_of(value))))
        for name, value in self.step.gradients["params"].items():
            self._put_gradient(body, f"u_{name}", value)
            body.lines.append(f"a_{name} += u_{name}")
        for name, value in self.step.gradients["state"].items():
            alone = self.is_private(name) and self.cut is not None and self.cut.kind(value) != PART
            body.put(f"e_{name}", value, self._axis(name), first=alone)
        body.close()
        return body

    def _rows_of(self, value: Value) -> Axis:
        kind = self.cut.kind(value) if self.cut else None
        return kind if isinstance(kind, int) else None

    def _put_gradient(self, body: Body, name: str, value: Value) -> None:
        alone = self.cut is not None and self.is_part(value) and self.cut.kind(value) != PART
        body.put(name, value, self._rows_of(value), first=alone)

    def _at(self, pointer: str, shape: Sequence[int], in_parts: bool = False) -> str:
        """The address of a step's part of a tensor `[B, T, H, ...]`; a tensor in parts has another axis behind H."""
        size = volume(shape)
        place = "((b * T + {t}) * H + h)"
        return f"{pointer} + ({place} * {self.cuts} + cut) * {size}" if in_parts else f"{pointer} + {place} * {size}"

    def _stored(self, name: str) -> str:
        """The address at which the backward kernel stores the state before a step."""
        place = f"states + (m * C + t - start) * {self.states} + {self._offset(name)}"
        return f"{place} + cut * {self.step.state[name].size}" if self.is_private(name) else place

    def _offset(self, name: str) -> int:
        before = list(self.step.state)[: list(self.step.state).index(name)]
        return sum(self.step.state[n].size * self._copies(n) for n in before)

    def _kept(self, name: str, chunk: str) -> str:
        """The address at which the forward kernel stores the state at the start of a chunk."""
        before = list(self.step.state)[: list(self.step.state).index(name)]
        size = sum(d.size for d in self.step.state.values())
        offset = sum(self.step.state[n].size for n in before)
        return f"checkpoints + (m * ((T + C - 1) // C) + {chunk}) * {size} + {offset}"

    # The loops ------------------------------------------------------------------------------------------------------

    def _kernel(self, kernel: str, lines: Sequence[str]) -> str:
        kinds = {**dict.fromkeys((*self.strides, *SIZES), ": tl.int64"), **dict.fromkeys(FLAGS, ": tl.constexpr")}
        quoted = ", ".join(f'"{name}"' for name in (*self.strides, *SIZES))
        head = [f"{name}{kinds.get(name, '')}," for name in self.parameters(kernel)]
        code = [*self._start("\n".join(lines)), *lines]
        parts = [f"@triton.jit(do_not_specialize=[{quoted}])", f"def {kernel}(", *_indent(head), "):", *_indent(code)]
        return "\n".join([*parts, ""])

    def _start(self, code: str) -> list[str]:
        """The head and the rows of a program, and the indices along axes that the code uses."""
        lines = [f"real: tl.constexpr = {REAL[self.dtype]}", "program = tl.program_id(0).to(tl.int64)"]
        if self.cut:
            lines += [f"m, cut = program // {self.cuts}, program % {self.cuts}", "first = cut == 0"]
            lines += [f"rows = cut * {self.rows} + tl.arange(0, {self.rows})"]
        else:
            lines += ["m = program"]
        lines += ["b, h = m // H, m % H"]
        lines += [f"i{n} = tl.arange(0, {n})" for n in (1 << k for k in range(1, 21)) if _names(code, f"i{n}")]
        if self._places:
            lines += [f"memory += program * {self.memory}"]
        return [*lines, "end = T", "if LENGTHS:", "    end = tl.load(lengths + b)"]

    def _forward_lines(self) -> list[str]:
        body = self._forward_body(with_y=True)
        fixed, _, inputs = self._tiles(body)
        keep = [store(self._kept(n, "t // C"), f"s_{n}", self._leaf(n), *self._once(n)) for n in self.step.state]
        return [
            *[f"{name} = {load(pointer, domain)}" for name, pointer, domain in fixed],
            *[f"s_{n} = {load(f'first_state_{n} + m * {d.size}', self._leaf(n))}" for n, d in self.step.state.items()],
            *self._load_inputs("", inputs, "0", "0 < end"),
            "for t in range(0, end):",
            *_indent(
                [
                    "if KEEP:",
                    "    if t % C == 0:",
                    *_indent(keep, 2),
                    *self._reset(),
                    *self._load_inputs("next_", inputs, "(t + 1)", "t + 1 < end"),
                    *body.lines,
                    *[f"s_{n} = n_{n}" for n in self.step.state],
                    *_advanced(inputs),
                ]
            ),
            *[
                store(f"last_state_{n} + m * {d.size}", f"s_{n}", self._leaf(n), *self._once(n))
                for n, d in self.step.state.items()
            ],
        ]

    def _backward_lines(self) -> list[str]:
        backward, recompute = self._backward_body(), self._forward_body(with_y=False)
        fixed, state, inputs = self._tiles(backward)
        fixed_too, _, inputs_again = self._tiles(recompute)
        fixed = list({name: (name, p, d) for name, p, d in [*fixed, *fixed_too]}.values())
        return [
            *[f"{name} = {load(pointer, domain)}" for name, pointer, domain in fixed],
            *[f"g_{n} = {self._first_gradient(n)}" for n in self.step.state],
            *[f"a_{n} = {zeros(self._param(n))}" for n in self.step.params],
            "chunks = (end + C - 1) // C",
            "for c in range(0, chunks):",
            *_indent(
                [
                    "start = (chunks - 1 - c) * C",
                    "stop = tl.minimum(start + C, end)",
                    *[f"s_{n} = {load(self._kept(n, 'start // C'), self._leaf(n))}" for n in self.step.state],
                    *self._load_inputs("", inputs_again, "start", ""),
                    "for t in range(start, stop):",
                    *_indent(self._recompute(recompute, inputs_again)),
                    "tl.debug_barrier()",
                    *self._load_inputs("", inputs, "(stop - 1)", ""),
                    "for n in range(0, stop - start):",
                    *_indent(self._back(backward, state, inputs)),
                    "tl.debug_barrier()",
                ]
            ),
            *self._last_gradients(),
        ]

    def _recompute(self, body: Body, inputs: "list[Tile]") -> list[str]:
        """A step of the recompute pass. The state before the step is stored."""
        return [
            *self._reset(),
            *[store(self._stored(n), f"s_{n}", self._leaf(n)) for n in self.step.state],
            *self._load_inputs("next_", inputs, "(t + 1)", "t + 1 < stop"),
            *body.lines,
            *[f"s_{n} = n_{n}" for n in self.step.state],
            *_advanced(inputs),
        ]

    def _back(self, body: Body, state: "list[Tile]", inputs: "list[Tile]") -> list[str]:
        """A step of the backward pass. At a reset, the gradient of the state goes to the initial state."""
        return [
            "t = stop - 1 - n",
            *[f"{name} = {load(pointer, domain)}" for name, pointer, domain in state],
            *self._load_inputs("next_", inputs, "(t - 1)", "t > start"),
            *body.lines,
            "if RESET:",
            "    if tl.load(reset + b * T + t) != 0:",
            *_indent([line for n in self.step.state for line in self._given_back(n)], 2),
            *[f"g_{n} = e_{n}" for n in self.step.state],
            *_advanced(inputs),
        ]

    def _reset(self) -> list[str]:
        leaves = [
            f"s_{n} = {load(f'initial_state_{n} + m * {d.size}', self._leaf(n))}" for n, d in self.step.state.items()
        ]
        return ["if RESET:", "    if tl.load(reset + b * T + t) != 0:", *_indent(leaves, 2)]

    def _given_back(self, name: str) -> list[str]:
        """Adds the gradient of the state at a reset to that of the initial state."""
        pointer = self._of_head(f"all_initial_d_state_{name}", name)
        return [
            store(pointer, f"{load(pointer, self._leaf(name))} + e_{name}", self._leaf(name)),
            "tl.debug_barrier()",
            f"e_{name} = {zeros(self._leaf(name))}",
        ]

    def _first_gradient(self, name: str) -> str:
        return load(f"last_d_state_{name} + m * {self.step.state[name].size}", self._leaf(name), *self._once(name))

    def _last_gradients(self) -> list[str]:
        states = [store(self._of_head(f"all_d_state_{n}", n), f"g_{n}", self._leaf(n)) for n in self.step.state]
        return [*states, *[store(self._of_param(n), f"a_{n}", self._param(n)) for n in self.step.params]]

    def _of_head(self, pointer: str, name: str) -> str:
        """The address of the gradient of a tensor of the state, whole or in parts."""
        place = f"(m * {self.cuts} + cut)" if self.is_private(name) else "m"
        return f"{pointer} + {place} * {self.step.state[name].size}"

    def _of_param(self, name: str) -> str:
        value = self.step.gradients["params"][name]
        place = f"(m * {self.cuts} + cut)" if self.is_part(value) else "m"
        return f"all_d_param_{name} + {place} * {volume(value.shape)}"

    def _param(self, name: str) -> Domain:
        value = self.step.gradients["params"][name]
        return self._domain(value.shape, self._rows_of(value))

    def _once(self, name: str) -> list[str]:
        """The condition for stores of a tensor that every program has: only the first program stores it."""
        return ["first"] if self.is_private(name) else []

    def _tiles(self, body: Body) -> "Tiles":
        """The tiles that the code of a pass expects to be loaded from memory."""
        tiles = Tiles([], [], [])
        for (node, axis), name in body.wanted.items():
            tile = name, body.given[node].address, self._domain(node.shape, axis)
            if node in {*self.step.params.values(), *self._tables}:
                tiles.fixed.append(tile)
            elif node in self.step.state.values():
                tiles.state.append(tile)
            else:
                tiles.inputs.append(tile)
        return tiles

    def _load_inputs(self, prefix: str, inputs: "Iterable[Tile]", t: str, condition: str) -> list[str]:
        """Loads the inputs of step `t` under a condition, which is empty if the step always exists."""
        conditions = [f"({condition})"] if condition else []
        return [
            f"{prefix}{name} = {load(pointer.format(t=t), domain, *conditions)}" for name, pointer, domain in inputs
        ]


def sourced(passes: Passes, title: str, dtype: torch.dtype, num_heads: int = FULL) -> TritonSource:
    """The kernels for a number of heads, counted over the batch. With few heads, several programs share a head.

    The kernels ignore the tensors that the recompute pass keeps: the backward pass computes them again in registers.
    """
    step = passes.step
    partition = cut(step)
    rows = 0 if partition is None else _rows(partition, step, num_heads)
    return TritonSource(step, title, dtype, partition if rows else None, rows)


def _rows(partition: Cut, step: Step, num_heads: int) -> int:
    """The number of rows of a program: as many as one warp holds, or fewer to occupy the chip; 0 for all rows."""
    across = max(padded(d.size // partition.size) for n, d in step.state.items() if partition.leaves[n] is not None)
    rows = padded(partition.size)
    while rows > 1 and rows * across > WARP:
        rows //= 2
    while rows > LEAST and num_heads * -(-partition.size // rows) < FULL:
        rows //= 2
    return 0 if rows >= partition.size else rows


Tile = tuple[str, str, Domain]
"""The name of a tile, its address in memory, and its axes."""


class Tiles(NamedTuple):
    """Tiles in memory: params and tables, the state of a step, and the inputs of a step (with the gradient of y)."""

    fixed: list[Tile]
    state: list[Tile]
    inputs: list[Tile]


def _advanced(inputs: Iterable[Tile]) -> list[str]:
    return [f"{name} = next_{name}" for name, _, _ in inputs]


def _indent(lines: Iterable[str], by: int = 1) -> list[str]:
    return [f"{'    ' * by}{line}" for line in lines]


def _names(code: str, name: str) -> bool:
    return any(f"{name}{end}" in code for end in ("[", " ", ")", ","))
