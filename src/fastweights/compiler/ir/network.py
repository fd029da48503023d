"""A network program: operations over named buffers, independent of the target.

The package `compiler/network` makes a program from a traced module, and a target prints and builds it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

import torch

from fastweights.cell import Cell
from fastweights.compiler.ir.nodes import Node, Shape, Value, volume

ElementType = Literal["real", "int64", "bool", "uint8", "bfloat16", "int8"]
Precision = Literal["float32", "bfloat16", "int8"]
"""The type of the elements of matrices that a step multiplies with. Everything else is computed in float32."""


class BufferRole(Enum):
    """The role of a buffer in a program."""

    WEIGHT = "weight"
    """A parameter or buffer of the module, or a constant of the trace. The step only reads it."""
    INPUT = "input"
    OUTPUT = "output"
    STATE = "state"
    """A state before the step."""
    NEW_STATE = "new_state"
    """A state after the step. It may be the same memory as the state before the step."""
    SCRATCH = "scratch"
    """An intermediate result."""


@dataclass(eq=False)
class NetworkBuffer:
    """A contiguous tensor in memory.

    Args:
        name: Unique name. For a weight it is its name in the module.
        shape: Sizes of the axes.
        type: Type of the elements. "real" is float, or double in a program in float64.
        role: Role in the program.
        scale: The scale of every row `[N]` of a weight in int8.
    """

    name: str
    shape: Shape
    type: ElementType
    role: BufferRole
    scale: "NetworkBuffer | None" = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return volume(self.shape)


@dataclass(frozen=True)
class View:
    """A part of a buffer: its first element, and the stride of every axis in elements."""

    buffer: NetworkBuffer
    offset: int
    shape: Shape
    strides: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class MatrixProduct:
    """y[m, n] = sum_k x[m, k] W[n, k] + bias[n]. Every element of W is read once.

    Args:
        y: Result, `[M, N]`.
        x: `[M, K]`, with stride 1 along k.
        weight: `[N, K]`, with stride 1 along k or along n.
        bias: `[N]`, if there is one.
    """

    y: NetworkBuffer
    x: View
    weight: View
    bias: View | None = None

    @property
    def reads(self) -> list[NetworkBuffer]:
        """The buffers that the operation reads."""
        return [v.buffer for v in (self.x, self.weight, self.bias) if v is not None]

    @property
    def writes(self) -> list[NetworkBuffer]:
        """The buffers that the operation writes."""
        return [self.y]


@dataclass(frozen=True, eq=False)
class Gather:
    """y[i, :] = table[index[i], :]. An index outside of the table stops the step with an error code."""

    y: NetworkBuffer
    table: View
    index: View

    @property
    def reads(self) -> list[NetworkBuffer]:
        """The buffers that the operation reads."""
        return [self.table.buffer, self.index.buffer]

    @property
    def writes(self) -> list[NetworkBuffer]:
        """The buffers that the operation writes."""
        return [self.y]


@dataclass(frozen=True, eq=False)
class CellStep:
    """The T time steps of every head of a cell, one after the other.

    Args:
        cell: The cell.
        sizes: The size of every axis of the cell.
        dtype: The dtype of the cell's tensors.
        inputs: `[B, T, H, ...]`, dense in the axes behind the heads.
        states: `[B, H, ...]`, contiguous.
        params: `[H, ...]`, contiguous.
        initial: The states after a reset, `[B, H, ...]`; empty without resets.
        reset: real `[B, T]`, 1 for a reset, if there are resets.
        y: Output, `[B, T, H, ...]`.
        new_states: `[B, H, ...]`.
    """

    cell: Cell
    sizes: Mapping[str, int]
    dtype: torch.dtype
    inputs: Sequence[View]
    states: Sequence[View]
    params: Sequence[View]
    initial: Sequence[View]
    reset: View | None
    y: NetworkBuffer
    new_states: Sequence[NetworkBuffer]

    @property
    def reads(self) -> list[NetworkBuffer]:
        """The buffers that the operation reads."""
        views = [*self.inputs, *self.states, *self.params, *self.initial, *([self.reset] if self.reset else [])]
        return [v.buffer for v in views]

    @property
    def writes(self) -> list[NetworkBuffer]:
        """The buffers that the operation writes."""
        return [self.y, *self.new_states]


@dataclass(frozen=True, eq=False)
class Loops:
    """Elementwise functions, sums, extrema and moves: `results` are expressions over the nodes in `placeholders`."""

    placeholders: dict[Node, NetworkBuffer]
    results: Sequence[tuple[NetworkBuffer, Value]]

    @property
    def reads(self) -> list[NetworkBuffer]:
        """The buffers that the operation reads."""
        return list(dict.fromkeys(self.placeholders.values()))

    @property
    def writes(self) -> list[NetworkBuffer]:
        """The buffers that the operation writes."""
        return [buffer for buffer, _ in self.results]


@dataclass(frozen=True, eq=False)
class Convert:
    """y = x, element by element, with another type of elements or another place. x is contiguous."""

    y: NetworkBuffer
    x: View

    @property
    def reads(self) -> list[NetworkBuffer]:
        """The buffers that the operation reads."""
        return [self.x.buffer]

    @property
    def writes(self) -> list[NetworkBuffer]:
        """The buffers that the operation writes."""
        return [self.y]


Operation = MatrixProduct | Gather | CellStep | Loops | Convert


@dataclass(eq=False)
class NetworkProgram:
    """One step of a network.

    Args:
        title: First line of the source text.
        buffers: All buffers, by role in the order of the arguments of the step.
        operations: The operations in the order in which they run.
    """

    title: str
    buffers: list[NetworkBuffer] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    @property
    def arguments(self) -> list[NetworkBuffer]:
        """The buffers whose addresses a step takes: the weights, the inputs and states, then the results."""
        groups = ((BufferRole.WEIGHT,), (BufferRole.INPUT, BufferRole.STATE), (BufferRole.OUTPUT, BufferRole.NEW_STATE))
        return [b for roles in groups for b in self.buffers if b.role in roles]

    def of(self, role: BufferRole) -> list[NetworkBuffer]:
        """The buffers with a role, in order."""
        return [b for b in self.buffers if b.role is role]
