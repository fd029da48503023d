"""The vocabulary in which rules and cells say what they take: axes and roles, as annotations.

A signature such as `delta(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix` is the whole specification: the scan
checks shapes against it, a layer sizes its slow net from it, and the contract tests draw random inputs for it.

Letters: K key size, V value size; a digit is a fixed size. Batch, time and heads never appear: a rule and a cell are
written for one head and one step.
"""

from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from torch import Tensor


class Slot(NamedTuple):
    """The axes of one tensor ("V K", "" for a scalar) and the role that tells a slow net how to emit it."""

    axes: str
    role: str

    def shape(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """The shape under `sizes`, such as {"K": 16, "V": 32}."""
        return tuple(int(axis) if axis.isdigit() else sizes[axis] for axis in self.axes.split())


Matrix = Annotated[Tensor, Slot("V K", "memory")]
Accumulator = Annotated[Tensor, Slot("K", "memory")]
RecurrentMatrix = Annotated[Tensor, Slot("V V", "memory")]
Output = Annotated[Tensor, Slot("V", "memory")]
"""An output that a state keeps for the next step."""
Key = Annotated[Tensor, Slot("K", "key")]
"""What a memory is addressed with, for writing and for reading (a query is a key): feature map, then normaliser."""
Value = Annotated[Tensor, Slot("V", "value")]
"""What is written, and whatever else the slow net emits as it is."""
Rate = Annotated[Tensor, Slot("", "rate")]
"""How strongly to write: in [0, 1]."""
Decay = Annotated[Tensor, Slot("", "decay")]
"""How much of the memory stays: in [0, 1], near 1 at the start of training."""


def slots(record: type) -> dict[str, Slot]:
    """The slot of every field of a NamedTuple, in order.

    >>> class State(NamedTuple):
    ...     W: Matrix
    >>> slots(State)
    {'W': Slot(axes='V K', role='memory')}
    """
    return {name: slot_of(hint, name) for name, hint in get_type_hints(record, include_extras=True).items()}


def slot_of(hint: Any, name: str) -> Slot:
    """The slot inside an annotation; an error that names the field if there is none."""
    found = [extra for extra in get_args(hint)[1:] if isinstance(extra, Slot)]
    if not found:
        raise TypeError(f"{name} must be annotated with its axes (Key, Value, Rate, ...), got {hint!r}.")
    return found[0]
