"""What a kernel takes and gives, in order: stated here once, for what writes kernels and for what calls them.

Inputs are `[B, T, H, ...]`, states `[B, H, ...]`, params `[H, ...]`. Gradients have the shape of what they are of, but
those of params: there is one a member of the batch, `[B, H, ...]`, and the caller adds them up in order.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

T = TypeVar("T")


class Argument(NamedTuple):
    """One tensor or, with a record of the cell, one for every field: then `name_FIELD`."""

    name: str
    record: Literal["", "Inputs", "State", "Params"] = ""
    kind: Literal["real", "bool", "int64"] = "real"
    is_given: bool = True


FORWARD = (
    Argument("all_in", "Inputs"),  # of any strides over batch, time and heads
    Argument("first_state", "State"),
    Argument("all_param", "Params"),
    Argument("initial_state", "State"),  # where a reset goes back to; absent without resets
    Argument("reset", kind="bool"),  # [B, T], may be absent
    Argument("lengths", kind="int64"),  # [B], may be absent
    Argument("all_y", is_given=False),
    Argument("last_state", "State", is_given=False),
    Argument("checkpoints", is_given=False),  # [B H, chunks, numbers of a state]; absent if no gradient is wanted
)
ONE_STEP = (
    Argument("all_in", "Inputs"),
    Argument("first_state", "State"),
    Argument("all_param", "Params"),
    Argument("initial_state", "State"),
    Argument("reset", kind="bool"),
    Argument("all_y", is_given=False),
    Argument("last_state", "State", is_given=False),  # may be the first one
)
BACKWARD = (
    Argument("all_in", "Inputs"),
    Argument("all_param", "Params"),
    Argument("initial_state", "State"),
    Argument("reset", kind="bool"),
    Argument("lengths", kind="int64"),
    Argument("checkpoints"),
    Argument("all_d_y"),
    Argument("last_d_state", "State"),  # each may be absent
    Argument("all_d_in", "Inputs", is_given=False),
    Argument("all_d_state", "State", is_given=False),
    Argument("all_d_param", "Params", is_given=False),
    Argument("all_initial_d_state", "State", is_given=False),  # absent without resets
)
NUMBERS = ("B", "T", "H", "C", "threads", "first_head", "last_head")
"""Batch, time, heads, steps per chunk, threads, and the heads of a call: those from `first_head` up to, but without,
`last_head`, counted over all members of the batch. The strides of every input over batch, time and heads follow."""


def in_order(arguments: Sequence[Argument], tensors: Mapping[str, Sequence[T]]) -> list[T]:
    """The tensors of all arguments, given by name, as a kernel takes them."""
    return [x for argument in arguments for x in tensors[argument.name]]


def names(argument: Argument, fields: Mapping[str, Sequence[str]]) -> list[str]:
    """What the tensors of an argument are called; `fields` are those of the records of a cell."""
    return [f"{argument.name}_{field}" for field in fields[argument.record]] if argument.record else [argument.name]
