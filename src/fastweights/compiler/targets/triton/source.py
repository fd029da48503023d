"""Prints the kernels of a cell in Triton. A program runs all time steps of a head, or of some rows of a head.

The forward kernel stores the state every C steps. For each chunk, the backward kernel runs the steps again from that
state (the recompute pass), and stores for every step the state and the kept tensors that the gradient reads. It then
computes the gradients in reverse order (the backward pass). Inputs are loaded one step ahead, and so is what the
recompute pass has stored, if the registers suffice.

With few heads, a step waits for its own results most of the time. Tensors that depend on inputs only are then computed
for all steps by a third kernel, which runs before the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch

from fastweights.compiler.ir.nodes import ConstantTensor, Input, Node, Value, ancestors, upstream, volume, whole
from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.ir.step import Step
from fastweights.compiler.targets.arguments import BACKWARD, FORWARD, Argument, names
from fastweights.compiler.targets.triton.access_patterns import in_memory, padded
from fastweights.compiler.targets.triton.ahead import ahead_of_time
from fastweights.compiler.targets.triton.body import Axis, Body, Domain, Placeholder, load, store, zeros
from fastweights.compiler.targets.triton.kernel_text import (
    Tile,
    advanced,
    axis_indices,
    block_of_steps,
    indent,
    kernel_text,
)
from fastweights.compiler.targets.triton.partition import PART, Cut, cut

REAL = {torch.float32: "tl.float32", torch.float64: "tl.float64"}
FLAGS = ("KEEP", "RESET", "LENGTHS", "AHEAD")
SIZES = ("T", "H", "C")
SCRATCH = tuple(map(Argument, ("chunk", "prepared", "memory", "tables")))
"""Further tensors of the kernels: those of a chunk of steps, those computed ahead, those of a step, and constants."""
ARGUMENTS = {
    "prepare": (*BACKWARD[:2], *SCRATCH[1::2]),
    "forward": (*FORWARD, *SCRATCH[1:]),
    "backward": (*BACKWARD, *SCRATCH),
}
"""The arguments of the kernels, in order."""
WARP = 1024
"""Number of state elements that one warp holds in 32 registers per thread."""
FULL = 128
"""Number of programs that occupy a chip: about one per multiprocessor."""
FEW = 4 * FULL
"""Largest number of heads for which tensors are computed ahead. With more, a step spends less time waiting."""
BLOCK = 16
"""Number of time steps of a program that computes tensors ahead."""
LEAST = 4
"""Smallest number of rows of a program. Every program repeats the work that all rows share."""
HEAD = """import triton
import triton.language as tl
from triton.language.extra import libdevice

from fastweights.compiler.targets.triton import intrinsics as fw
"""


@dataclass(frozen=True, eq=False)
class TritonSource:
    """Prints the kernels of a cell. With a partition, a program has `rows` rows of a head.

    The kernel `prepare` computes the tensors `ahead` for all steps. If there are any, it runs before the others.
    """

    passes: Passes
    title: str
    dtype: torch.dtype
    cut: Cut | None = None
    rows: int = 0
    ahead: tuple[Node, ...] = ()

    @property
    def step(self) -> Step:
        """The step with its gradient."""
        return self.passes.step

    @cached_property
    def text(self) -> str:
        """The source text of a module."""
        kernels = [self._kernel("forward", self._forward_lines()), self._kernel("backward", self._backward_lines())]
        kernels += [self._kernel("prepare", self._prepare_lines())] if self.ahead else []
        return "\n\n".join([f'"""{self.title}."""\n\n{HEAD}', *kernels])

    def tensors(self, kernel: str) -> list[str]:
        """The names of the tensors that a kernel takes, in order."""
        return [name for argument in ARGUMENTS[kernel] for name in names(argument, self.passes.fields)]

    @property
    def strides(self) -> list[str]:
        """The names of the strides of every input over batch, time and heads."""
        return [f"{axis}_stride_{name}" for name in self.step.inputs for axis in "bth"]

    def parameters(self, kernel: str) -> list[str]:
        """All parameters of a kernel, in order."""
        return [*self.tensors(kernel), *self.strides, *SIZES, *FLAGS]

    @property
    def cuts(self) -> int:
        """Number of programs per head."""
        return -(-self.cut.size // self.rows) if self.cut else 1

    @cached_property
    def memory(self) -> int:
        """Number of elements that a program keeps in memory within a step."""
        return sum(d.size for d in self.out_of_order)

    @property
    def chunk_numbers(self) -> int:
        """Number of elements per step that the recompute pass stores for all programs of a head."""
        return self._places_in_chunk.size

    @property
    def prepared_numbers(self) -> int:
        """Number of elements per step and head that are computed before the others."""
        return self._places_ahead.size

    @cached_property
    def _places_in_chunk(self) -> "Places":
        return placed({d: self._copies(d) for d in self._stored})

    @cached_property
    def _places_ahead(self) -> "Places":
        return placed(dict.fromkeys(self.ahead, 1))

    @cached_property
    def _saved_nodes(self) -> dict[str, Node]:
        """The tensors that the recompute pass keeps, but for those of inputs only if these are computed ahead."""
        saved = {name: d for name, d in self.passes.backward.moving.items() if name in self.passes.recompute.made}
        early = {*self.step.inputs.values(), *self.step.params.values()}
        return {
            name: d
            for name, d in saved.items()
            if not self.ahead or any(isinstance(x, Input) and x not in early for x in upstream([d]))
        }

    @cached_property
    def _stored(self) -> dict[Node, str]:
        """The names of the tensors that the recompute pass stores: the state that the gradient reads, and kept ones."""
        saved = {d: name for name, d in self._saved_nodes.items()}
        read = ancestors(self.passes.backward.results, {*saved, *self.ahead})
        return {d: f"s_{name}" for name, d in self.step.state.items() if d in read} | saved

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

    def _copies(self, node: Node) -> int:
        return 1 if self.cut is None or isinstance(self._axis_of(node), int) else self.cuts

    @cached_property
    def _everything(self) -> list[Node]:
        return sorted(ancestors(self.step.results), key=lambda d: d.serial)

    @cached_property
    def _tables(self) -> list[ConstantTensor]:
        return [d for d in self._everything if isinstance(d, ConstantTensor)]

    @cached_property
    def out_of_order(self) -> list[Node]:
        """The nodes that are read in ways that a tile in registers does not allow."""
        there = {*self.step.inputs.values(), *self.step.params.values(), *self._tables, self.step.d_y}
        return sorted(in_memory(self.step.results, there), key=lambda d: d.serial)

    @cached_property
    def _places(self) -> dict[Node, int]:
        places, offset = dict[Node, int](), 0
        for node in self.out_of_order:
            places[node] = offset
            offset += node.size
        return places

    def _axis(self, name: str) -> Axis:
        """The axis along which a tensor of the state is divided."""
        return self.cut.leaves[name] if self.cut else None

    def _axis_of(self, node: Node) -> Axis:
        """The axis along which a node is divided."""
        return self._rows_of(whole(node))

    def _domain(self, shape: Sequence[int], axis: Axis = None) -> Domain:
        return Domain(tuple(shape), axis, self.rows)

    def _leaf(self, name: str) -> Domain:
        return self._domain(self.step.state[name].shape, self._axis(name))

    # The code of a step ---------------------------------------------------------------------------------------------

    def _fixed(self) -> dict[Node, Placeholder]:
        """The params and the constant tensors."""
        placeholders: dict[Node, Placeholder] = {
            d: Placeholder(f"p_{n}", f"all_param_{n} + h * {d.size}") for n, d in self.step.params.items()
        }
        offset = 0
        for n, table in enumerate(self._tables):
            placeholders[table] = Placeholder(f"c_{n}", f"tables + {offset}")
            offset += table.size
        return placeholders

    def _moving(self) -> dict[Node, Placeholder]:
        """The inputs of a step."""
        return {
            d: Placeholder(f"x_{n}", f"all_in_{n} + b * b_stride_{n} + {{t}} * t_stride_{n} + h * h_stride_{n}")
            for n, d in self.step.inputs.items()
        }

    def _prepared(self) -> dict[Node, Placeholder]:
        """The tensors of a step that are computed before the others."""
        step = f"prepared + ((b * T + {{t}}) * H + h) * {self.prepared_numbers}"
        offsets = self._places_ahead.offsets
        return {d: Placeholder(f"h_{n}", f"{step} + {offsets[d]}") for n, d in enumerate(self.ahead)}

    def _body(self, placeholders: dict[Node, Placeholder]) -> Body:
        return Body(placeholders | self._moving() | self._fixed() | self._prepared(), self._places, self.cut, self.rows)

    def _state_body(self) -> Body:
        """The code of the new state."""
        body = self._body({d: Placeholder(f"s_{n}") for n, d in self.step.state.items()} | self._d_y())
        for name, value in self.step.new_state.items():
            body.put(f"n_{name}", value, self._axis(name))
        return body

    def _d_y(self) -> dict[Node, Placeholder]:
        return {self.step.d_y: Placeholder("g", self._at("all_d_y", self.step.d_y.shape))}

    def _forward_body(self) -> Body:
        body, axis = self._state_body(), self._rows_of(self.step.y)
        body.put("y", self.step.y, axis)
        condition = ["first"] if self.cut and axis is None else []
        pointer = self._at("all_y", self.step.y.shape).format(t="t")
        body.lines.append(store(pointer, "y", self._domain(self.step.y.shape, axis), *condition))
        body.close()
        return body

    def _recompute_body(self) -> Body:
        body = self._state_body()
        for name, node in self._saved_nodes.items():
            axis = self._axis_of(node)
            body.put(name, whole(node), axis)
            body.lines.append(store(self._in_chunk(node).format(t="t"), name, self._domain(node.shape, axis)))
        body.close()
        return body

    def _prepare_body(self) -> Body:
        body = Body(self._moving() | self._fixed(), {})
        for node, placeholders in self._prepared().items():
            body.put(placeholders.name, whole(node))
            body.lines.append(store(placeholders.address.format(t="t"), placeholders.name, self._domain(node.shape)))
        return body

    def _backward_body(self) -> Body:
        placeholders = {d: Placeholder(name, self._in_chunk(d)) for d, name in self._stored.items()}
        placeholders |= {d: Placeholder(f"g_{n}") for n, d in self.step.d_state.items()} | self._d_y()
        body = self._body(placeholders)
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

    def _in_chunk(self, node: Node) -> str:
        """The address at which the recompute pass stores a tensor of a step."""
        place = f"chunk + (m * C + {{t}} - start) * {self.chunk_numbers} + {self._places_in_chunk.offsets[node]}"
        return f"{place} + cut * {node.size}" if self._copies(node) > 1 else place

    def _checkpoint(self, name: str, chunk: str) -> str:
        """The address at which the forward kernel stores the state at the start of a chunk."""
        before = list(self.step.state)[: list(self.step.state).index(name)]
        size = sum(d.size for d in self.step.state.values())
        offset = sum(self.step.state[n].size for n in before)
        return f"checkpoints + (m * ((T + C - 1) // C) + {chunk}) * {size} + {offset}"

    # The loops ------------------------------------------------------------------------------------------------------

    def _kernel(self, kernel: str, lines: Sequence[str]) -> str:
        kinds = {**dict.fromkeys((*self.strides, *SIZES), ": tl.int64"), **dict.fromkeys(FLAGS, ": tl.constexpr")}
        head = [f"{name}{kinds.get(name, '')}," for name in self.parameters(kernel)]
        code = [*self._start(kernel, "\n".join(lines)), *lines]
        return kernel_text(kernel, head, (*self.strides, *SIZES), code)

    def _start(self, kernel: str, code: str) -> list[str]:
        """The head and the rows of a program, and the indices along axes that the code uses."""
        lines = [f"real: tl.constexpr = {REAL[self.dtype]}", "program = tl.program_id(0).to(tl.int64)"]
        if kernel == "prepare":
            lines += block_of_steps(BLOCK)
        elif self.cut:
            lines += [f"m, cut = program // {self.cuts}, program % {self.cuts}", "first = cut == 0"]
            lines += [f"rows = cut * {self.rows} + tl.arange(0, {self.rows})"]
        else:
            lines += ["m = program"]
        lines += ["b, h = m // H, m % H"] if kernel != "prepare" else []
        lines += axis_indices(code)
        if kernel == "prepare":
            return lines
        if self._places:
            lines += [f"memory += program * {self.memory}"]
        return [*lines, "end = T", "if LENGTHS:", "    end = tl.load(lengths + b)"]

    def _forward_lines(self) -> list[str]:
        body = self._forward_body()
        fixed, _, inputs = self._tiles(body)
        keep = [store(self._checkpoint(n, "t // C"), f"s_{n}", self._leaf(n), *self._once(n)) for n in self.step.state]
        return [
            *[f"{name} = {load(pointer, domain)}" for name, pointer, domain in fixed],
            *[f"s_{n} = {load(f'first_state_{n} + m * {d.size}', self._leaf(n))}" for n, d in self.step.state.items()],
            *self._load_inputs("", inputs, "0", "0 < end"),
            "for t in range(0, end):",
            *indent(
                [
                    "if KEEP:",
                    "    if t % C == 0:",
                    *indent(keep, 2),
                    *self._reset(),
                    *self._load_inputs("next_", inputs, "(t + 1)", "t + 1 < end"),
                    *body.lines,
                    *[f"s_{n} = n_{n}" for n in self.step.state],
                    *advanced(inputs),
                ]
            ),
            *[
                store(f"last_state_{n} + m * {d.size}", f"s_{n}", self._leaf(n), *self._once(n))
                for n, d in self.step.state.items()
            ],
        ]

    def _backward_lines(self) -> list[str]:
        backward, recompute = self._backward_body(), self._recompute_body()
        fixed, stored, inputs = self._tiles(backward)
        fixed_too, _, inputs_again = self._tiles(recompute)
        fixed = list({name: (name, p, d) for name, p, d in [*fixed, *fixed_too]}.values())
        return [
            *[f"{name} = {load(pointer, domain)}" for name, pointer, domain in fixed],
            *[f"g_{n} = {self._first_gradient(n)}" for n in self.step.state],
            *[f"a_{n} = {zeros(self._param(n))}" for n in self.step.params],
            "chunks = (end + C - 1) // C",
            "for c in range(0, chunks):",
            *indent(
                [
                    "start = (chunks - 1 - c) * C",
                    "stop = tl.minimum(start + C, end)",
                    *[f"s_{n} = {load(self._checkpoint(n, 'start // C'), self._leaf(n))}" for n in self.step.state],
                    *self._load_inputs("", inputs_again, "start", ""),
                    "for t in range(start, stop):",
                    *indent(self._recompute(recompute, inputs_again)),
                    "tl.debug_barrier()",
                    *self._load_inputs("", inputs, "(stop - 1)", ""),
                    *_where("AHEAD", self._load_inputs("", stored, "(stop - 1)", "")),
                    "for n in range(0, stop - start):",
                    *indent(self._back(backward, stored, inputs)),
                    "tl.debug_barrier()",
                ]
            ),
            *self._last_gradients(),
        ]

    def _prepare_lines(self) -> list[str]:
        body = self._prepare_body()
        fixed, _, inputs = self._tiles(body)
        return [
            *[f"{name} = {load(pointer, domain)}" for name, pointer, domain in fixed],
            *self._load_inputs("", inputs, "start", ""),
            "for t in range(start, stop):",
            *indent(self._load_inputs("next_", inputs, "(t + 1)", "t + 1 < stop")),
            *indent([*body.lines, *advanced(inputs)]),
        ]

    def _recompute(self, body: Body, inputs: "list[Tile]") -> list[str]:
        """A step of the recompute pass. The state before the step is stored."""
        state = {n: d for n, d in self.step.state.items() if d in self._stored}
        return [
            *self._reset(),
            *[store(self._in_chunk(d).format(t="t"), f"s_{n}", self._leaf(n)) for n, d in state.items()],
            *self._load_inputs("next_", inputs, "(t + 1)", "t + 1 < stop"),
            *body.lines,
            *[f"s_{n} = n_{n}" for n in self.step.state],
            *advanced(inputs),
        ]

    def _back(self, body: Body, stored: "list[Tile]", inputs: "list[Tile]") -> list[str]:
        """A step of the backward pass. At a reset, the gradient of the state goes to the initial state."""
        return [
            "t = stop - 1 - n",
            *self._load_inputs("next_", inputs, "(t - 1)", "t > start"),
            *_where("AHEAD", self._load_inputs("next_", stored, "(t - 1)", "t > start")),
            *_where("not AHEAD", self._load_inputs("", stored, "t", "")),
            *body.lines,
            "if RESET:",
            "    if tl.load(reset + b * T + t) != 0:",
            *indent([line for n in self.step.state for line in self._pass_gradient_at_reset(n)], 2),
            *[f"g_{n} = e_{n}" for n in self.step.state],
            *advanced(inputs),
            *_where("AHEAD", advanced(stored)),
        ]

    def _reset(self) -> list[str]:
        leaves = [
            f"s_{n} = {load(f'initial_state_{n} + m * {d.size}', self._leaf(n))}" for n, d in self.step.state.items()
        ]
        return ["if RESET:", "    if tl.load(reset + b * T + t) != 0:", *indent(leaves, 2)]

    def _pass_gradient_at_reset(self, name: str) -> list[str]:
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
        for (node, axis), name in body.expected_loads.items():
            tile = name, body.placeholders[node].address, self._domain(node.shape, axis)
            if node in {*self.step.params.values(), *self._tables}:
                tiles.fixed.append(tile)
            elif node in self._stored:
                tiles.stored.append(tile)
            else:
                tiles.inputs.append(tile)
        return tiles

    def _load_inputs(self, prefix: str, inputs: "Iterable[Tile]", t: str, condition: str) -> list[str]:
        """Loads the inputs of step `t` under a condition, which is empty if the step always exists."""
        conditions = [f"({condition})"] if condition else []
        return [
            f"{prefix}{name} = {load(pointer.format(t=t), domain, *conditions)}" for name, pointer, domain in inputs
        ]


def sourced(
    passes: Passes, title: str, dtype: torch.dtype, num_heads: int = FULL, is_long: bool = True
) -> TritonSource:
    """The kernels for a number of heads, counted over the batch. With few heads, several programs share a head.

    With few heads, those for long sequences compute tensors ahead, by a kernel of its own.
    """
    step = passes.step
    partition = cut(step)
    rows = 0 if partition is None else _rows(partition, step, num_heads)
    source = TritonSource(passes, title, dtype, partition if rows else None, rows)
    ahead = ahead_of_time(step, source.out_of_order) if is_long and num_heads <= FEW else []
    return replace(source, ahead=tuple(ahead))


def _rows(partition: Cut, step: Step, num_heads: int) -> int:
    """The number of rows of a program: as many as one warp holds, or fewer to occupy the chip; 0 for all rows."""
    across = max(padded(d.size // partition.size) for n, d in step.state.items() if partition.leaves[n] is not None)
    rows = padded(partition.size)
    while rows > 1 and rows * across > WARP:
        rows //= 2
    while rows > LEAST and num_heads * -(-partition.size // rows) < FULL:
        rows //= 2
    return 0 if rows >= partition.size else rows


class Places(NamedTuple):
    """The offsets of tensors behind each other in memory, and the number of elements of all."""

    offsets: dict[Node, int]
    size: int


def placed(copies: Mapping[Node, int]) -> Places:
    """The places of some copies of tensors. Tensors begin at multiples of 16 bytes, and scalars follow them."""
    offsets, offset = dict[Node, int](), 0
    for node in sorted(copies, key=lambda d: d.size == 1):
        offsets[node] = offset
        offset += copies[node] * node.size if node.size == 1 else aligned(copies[node] * node.size)
    return Places(offsets, aligned(offset))


def aligned(size: int) -> int:
    """A number of elements, rounded up to 16 bytes in float32."""
    return -(-size // 4) * 4


class Tiles(NamedTuple):
    """Tiles in memory: params and tables, what the recompute pass stores, and the other tensors of a step."""

    fixed: list[Tile]
    stored: list[Tile]
    inputs: list[Tile]


def _where(flag: str, lines: Sequence[str]) -> list[str]:
    """Lines that a kernel has only with a flag."""
    return [f"if {flag}:", *indent(lines)] if lines else []
