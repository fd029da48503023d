"""Prints a function of one time step, and its gradient, as two kernels that run all time steps at once.

A program runs some consecutive time steps of one head. It loads the inputs of a step one step ahead. The backward
kernel computes the function again, and adds up the gradients of the params over its steps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from fastweights.compiler.ir.nodes import ConstantTensor, Node, Value, ancestors, volume
from fastweights.compiler.ir.step_map import StepMap
from fastweights.compiler.targets.triton.access_patterns import in_memory, padded, tile_size
from fastweights.compiler.targets.triton.body import Body, Domain, Placeholder, load, store, zeros
from fastweights.compiler.targets.triton.kernel_text import (
    Tile,
    advanced,
    axis_indices,
    block_of_steps,
    indent,
    kernel_text,
)
from fastweights.compiler.targets.triton.source import HEAD, REAL, WARP

STEPS = 8
"""Number of time steps of a program."""
MOST = 4
"""Largest number of warps of a program."""


@dataclass(frozen=True, eq=False)
class MapSource:
    """Prints the kernels of a function. An input is read if a computed output depends on it."""

    function: StepMap
    title: str
    dtype: torch.dtype

    @cached_property
    def inputs(self) -> list[int]:
        """The indices of the inputs that the kernels read, marks among them."""
        return [n for n, d in enumerate((*self.function.inputs, *self.function.marks)) if d in self.function.read]

    @cached_property
    def differentiable(self) -> list[int]:
        """The indices of the inputs whose gradient the backward kernel computes."""
        return [n for n in self.inputs if n < len(self.function.inputs)]

    @cached_property
    def params(self) -> list[int]:
        """The indices of the params that the kernels read."""
        return [n for n, d in enumerate(self.function.params) if d in self.function.read]

    @cached_property
    def outputs(self) -> list[int]:
        """The indices of the outputs whose gradients the backward kernel reads.

        These are the computed ones, and those that are an input that the kernels read.
        """
        copies = self.function.copies
        return [n for n in range(len(self.function.outputs)) if n not in copies or copies[n] in self.inputs]

    @cached_property
    def steps_back(self) -> int:
        """Number of time steps of a program of the backward kernel. Large params have few partial gradients."""
        size = sum(self.function.params[n].size for n in self.params)
        moving = sum(self.function.inputs[n].size for n in self.differentiable)
        return STEPS * padded(-(-size // max(1, moving)) or 1)

    def steps(self, kernel: str) -> int:
        """Number of time steps of a program."""
        return STEPS if kernel == "forward" else self.steps_back

    @cached_property
    def warps(self) -> int:
        """Number of warps of a program: one per 32 elements of the largest tile and thread."""
        sizes = [tile_size(d.shape) for d in ancestors(self._results)]
        return min(MOST, padded(max(sizes, default=1) // WARP or 1))

    def tensors(self, kernel: str) -> list[str]:
        """The names of the tensors that a kernel takes, in order."""
        read = [*(f"in_{n}" for n in self.inputs), *(f"param_{n}" for n in self.params), "tables", "memory"]
        if kernel == "forward":
            return [*read, *(f"out_{n}" for n in self.function.computed)]
        gradients = [*(f"d_in_{n}" for n in self.differentiable), *(f"d_param_{n}" for n in self.params)]
        return [*read, *(f"d_out_{n}" for n in self.outputs), *gradients]

    @property
    def strides(self) -> list[str]:
        """The names of the strides of every input over batch, time and heads."""
        return [f"{axis}_{n}" for n in self.inputs for axis in "bth"]

    @cached_property
    def text(self) -> str:
        """The source text of a module."""
        kernels = [self._kernel("forward", self._forward_body())]
        kernels += [self._kernel("backward", self._backward_body())] if self.has_gradients else []
        return "\n\n".join([f'"""{self.title}."""\n\n{HEAD}', *kernels])

    @property
    def has_gradients(self) -> bool:
        """Whether an output depends on an input or a param, so that there is a backward kernel."""
        return bool(self._gradients)

    @cached_property
    def numbers(self) -> list[float]:
        """The numbers of all constant tensors, one after the other."""
        return [n for d in self._tables for n in d.numbers]

    @cached_property
    def memory(self) -> int:
        """Number of elements that a program keeps in memory within a step."""
        return sum(d.size for d in self._places)

    @cached_property
    def _computed(self) -> list[Value]:
        return [part for n in self.function.computed for part in self.function.outputs[n]]

    @cached_property
    def _gradients(self) -> dict[str, Value]:
        """The gradients by name, those of inputs first."""
        named = {f"d_in_{n}": self.function.d_inputs[n] for n in self.differentiable}
        return named | {f"d_param_{n}": self.function.d_params[n] for n in self.params}

    @cached_property
    def _results(self) -> list[Value]:
        return [*self._computed, *self._gradients.values()]

    @cached_property
    def _tables(self) -> list[ConstantTensor]:
        everything = sorted(ancestors(self._results), key=lambda d: d.serial)
        return [d for d in everything if isinstance(d, ConstantTensor)]

    @cached_property
    def _places(self) -> dict[Node, int]:
        there = {*self._placeholders, *self._tables}
        nodes = sorted(in_memory(self._results, there), key=lambda d: d.serial)
        places, offset = dict[Node, int](), 0
        for node in nodes:
            places[node] = offset
            offset += node.size
        return places

    @cached_property
    def _placeholders(self) -> dict[Node, Placeholder]:
        """The inputs and params, and the gradients of the outputs."""
        function, placeholders = self.function, dict[Node, Placeholder]()
        for n, d in enumerate((*function.inputs, *function.marks)):
            placeholders[d] = Placeholder(f"x_{n}", f"in_{n} + b * b_{n} + {{t}} * t_{n} + h * h_{n}")
        for n, d in enumerate(function.params):
            placeholders[d] = Placeholder(f"p_{n}", f"param_{n} + h * {d.size}")
        for n, parts in enumerate(function.d_outputs):
            for place, d in enumerate(parts):
                placeholders[d] = Placeholder(f"g_{n}_{place}", _at(f"d_out_{n}", d.shape, place, len(parts)))
        return placeholders

    def _body(self) -> Body:
        offset, placeholders = 0, dict(self._placeholders)
        for n, table in enumerate(self._tables):
            placeholders[table] = Placeholder(f"c_{n}", f"tables + {offset}")
            offset += table.size
        return Body(placeholders, self._places)

    def _forward_body(self) -> Body:
        body = self._body()
        for n in self.function.computed:
            parts = self.function.outputs[n]
            for place, value in enumerate(parts):
                name, pointer = f"o_{n}_{place}", _at(f"out_{n}", value.shape, place, len(parts))
                body.put(name, value)
                body.lines.append(store(pointer.format(t="t"), name, Domain(value.shape)))
        body.close()
        return body

    def _backward_body(self) -> Body:
        body = self._body()
        for name, value in self._gradients.items():
            body.put(f"of_{name}", value)
            if name.startswith("d_in"):
                pointer = _at(name, value.shape, 0, 1).format(t="t")
                body.lines.append(store(pointer, f"of_{name}", Domain(value.shape)))
            else:
                body.lines.append(f"sum_{name} += of_{name}")
        body.close()
        return body

    def _kernel(self, kernel: str, body: Body) -> str:
        integers = [*self.strides, "T", "H"]
        head = [*(f"{name}," for name in self.tensors(kernel)), *(f"{name}: tl.int64," for name in integers)]
        lines = self._lines(kernel, body)
        code = [*self._start(kernel, "\n".join(lines)), *lines]
        return kernel_text(kernel, head, integers, code)

    def _start(self, kernel: str, code: str) -> list[str]:
        """The steps of a program, and the indices along axes that the code uses."""
        lines = [f"real: tl.constexpr = {REAL[self.dtype]}", "program = tl.program_id(0).to(tl.int64)"]
        lines += [*block_of_steps(self.steps(kernel)), *axis_indices(code)]
        return lines + ([f"memory += program * {self.memory}"] if self._places else [])

    def _lines(self, kernel: str, body: Body) -> list[str]:
        fixed, moving = self._tiles(body)
        sums = [(name, v) for name, v in self._gradients.items() if kernel == "backward" and name.startswith("d_param")]
        return [
            *[f"{name} = {load(pointer, domain)}" for name, pointer, domain in fixed],
            *[f"sum_{name} = {zeros(Domain(value.shape))}" for name, value in sums],
            *_loads("", moving, "start", []),
            "for t in range(start, stop):",
            *indent(_loads("next_", moving, "(t + 1)", ["(t + 1 < stop)"])),
            *indent(body.lines),
            *indent(advanced(moving)),
            *[
                store(f"{name} + program * {volume(value.shape)}", f"sum_{name}", Domain(value.shape))
                for name, value in sums
            ],
        ]

    def _tiles(self, body: Body) -> tuple[list[Tile], list[Tile]]:
        """The tiles that the code expects to be loaded: those of params and tables, and those of a step."""
        fixed: list[Tile] = []
        moving: list[Tile] = []
        for (node, _), name in body.expected_loads.items():
            tile = name, body.placeholders[node].address, Domain(node.shape)
            (fixed if node in {*self.function.params, *self._tables} else moving).append(tile)
        return fixed, moving


def _at(pointer: str, shape: Sequence[int], place: int, parts: int) -> str:
    """The address of a part of a step of a tensor `[B, T, parts, H, ...]`."""
    step = "b * T + {t}" if parts == 1 else f"(b * T + {{t}}) * {parts} + {place}"
    return f"{pointer} + (({step}) * H + h) * {volume(shape)}"


def _loads(prefix: str, tiles: Iterable[Tile], t: str, conditions: Sequence[str]) -> list[str]:
    return [f"{prefix}{name} = {load(pointer.format(t=t), domain, *conditions)}" for name, pointer, domain in tiles]
