"""The arguments of the kernels, in order: one list for the code that writes kernels and the code that calls them.

Inputs are `[B, T, H, ...]`, states `[B, H, ...]` and params `[H, ...]`. A gradient has the shape of its tensor, except
the gradient of a param: it is `[B, H, ...]`, and the caller sums it over the batch.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

T = TypeVar("T")


class Argument(NamedTuple):
    """A tensor or, with a record of the cell, a tensor `name_FIELD` for every field."""

    name: str
    record: Literal["", "Inputs", "State", "Params"] = ""
    kind: Literal["real", "bool", "int64"] = "real"
    is_input: bool = True


FORWARD = (
    Argument("all_in", "Inputs"),  # of any strides over batch, time and heads
    Argument("first_state", "State"),
    Argument("all_param", "Params"),
    Argument("initial_state", "State"),  # where a reset goes back to; absent without resets
    Argument("reset", kind="bool"),  # [B, T], may be absent
    Argument("lengths", kind="int64"),  # [B], may be absent
    Argument("all_y", is_input=False),
    Argument("last_state", "State", is_input=False),
    Argument("checkpoints", is_input=False),  # [B H, chunks, numbers of a state]; absent if no gradient is wanted
)
ONE_STEP = (
    Argument("all_in", "Inputs"),
    Argument("first_state", "State"),
    Argument("all_param", "Params"),
    Argument("initial_state", "State"),
    Argument("reset", kind="bool"),
    Argument("all_y", is_input=False),
    Argument("last_state", "State", is_input=False),  # may be the first one
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
    Argument("all_d_in", "Inputs", is_input=False),
    Argument("all_d_state", "State", is_input=False),
    Argument("all_d_param", "Params", is_input=False),
    Argument("all_initial_d_state", "State", is_input=False),  # absent without resets
)
NUMBERS = ("B", "T", "H", "C", "threads", "first_head", "last_head")
"""Batch size, time steps, heads, time steps per chunk, threads, and the range of heads of a call.

Heads are counted over the batch, and `last_head` is exclusive. The strides of every input over batch, time and heads
follow these numbers.
"""


def in_order(arguments: Sequence[Argument], tensors: Mapping[str, Sequence[T]]) -> list[T]:
    """The tensors of all arguments in the order of the kernel, from tensors by name."""
    return [x for argument in arguments for x in tensors[argument.name]]


def names(argument: Argument, fields: Mapping[str, Sequence[str]]) -> list[str]:
    """The names of the tensors of an argument. `fields` are the fields of the cell's records."""
    return [f"{argument.name}_{field}" for field in fields[argument.record]] if argument.record else [argument.name]
