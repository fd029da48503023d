"""The vocabulary in which rules and cells say what they take: axes and roles, as annotations.

A signature such as `delta(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix` is the whole specification: the scan
checks shapes against it, a layer sizes its slow net from it, and the contract tests draw random inputs for it.

Letters: K key size, V value size, any other letter a size of the cell's own; a digit is a fixed size, and "4*K+1" one
that follows. Batch, time and heads never appear: a rule and a cell are written for one head and one step.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints

from torch import Tensor

from fastweights.core.errors import require, require_name


class KeyMaps(NamedTuple):
    """What makes keys and queries of what a slow net says: names of a feature map and of a normaliser."""

    feature_map: str = "elu"
    normaliser: str = "sum"


Step = TypeVar("Step", bound=Callable[..., Any])


def keyed_by(feature_map: str, normaliser: str) -> Callable[[Step], Step]:
    """Says what a rule or a cell wants its keys to go through where nobody asks for something else.

    Without it that is ELU + 1 over its sum, as the papers' delta models have it.
    """

    def declare(step: Step) -> Step:
        step.key_maps = KeyMaps(feature_map, normaliser)  # type: ignore[attr-defined]
        return step

    return declare


def invents(rates: Callable[..., Mapping[str, Tensor]]) -> Callable[[Step], Step]:
    """Names the learning rates that a step computes itself, so that `fastweights inspect` can show them.

    Args:
        rates: `(state, x, params) -> {name: rate}`, called like the step of one head with the state before the write;
            without `params` for a cell that has none. A rate is a scalar or a vector.
    """

    def declare(step: Step) -> Step:
        step.rates = rates  # type: ignore[attr-defined]
        return step

    return declare


class Slot(NamedTuple):
    """The axes of one tensor ("V K", "" for a scalar) and the role that tells a layer how to make it.

    Inputs have the role "key", "value", "rate", "decay" or "control", after "shared" if one map makes them for all
    heads; states "memory", "gram" for a sum of k k^T, or "output" for one that is kept; parameters "weight" (a map from
    its last axis), "gain", "bias" or "constant", after "shared" if all heads have the same or "fixed" if none learns.
    """

    axes: str
    role: str

    @property
    def kind(self) -> str:
        """The role without "shared" or "fixed"."""
        return self.role.split()[-1]

    @property
    def is_shared(self) -> bool:
        """Whether all heads have the same."""
        return self.role.startswith("shared")

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape under `sizes`, such as {"K": 16, "V": 32}."""
        return tuple([size(axis, sizes) for axis in self.axes.split()])


def size(axis: str, sizes: Mapping[str, int]) -> int:
    """The size of an axis: a letter, a digit, or sums and products of these.

    >>> size("4*K+1", {"K": 3})
    13
    """
    # Lists, since `torch.compile` takes no generators here.
    terms = [[int(f) if f.isdigit() else _known(f, sizes) for f in term.split("*")] for term in axis.split("+")]
    return sum([prod(term) for term in terms])


def _known(letter: str, sizes: Mapping[str, int]) -> int:
    require(letter in sizes, "sizes", f"given for every letter, {letter} too", list(sizes))
    return sizes[letter]


ROLES = {
    "Inputs": [
        f"{shared}{role}" for role in ("key", "value", "rate", "decay", "control") for shared in ("", "shared ")
    ],
    "State": ["memory", "gram", "output"],
    "Params": [f"{how}{role}" for role in ("weight", "gain", "bias", "constant") for how in ("", "shared ", "fixed ")],
}
"""What a field of every record can be."""

Matrix = Annotated[Tensor, Slot("V K", "memory")]
Accumulator = Annotated[Tensor, Slot("K", "memory")]
RecurrentMatrix = Annotated[Tensor, Slot("V V", "memory")]
Output = Annotated[Tensor, Slot("V", "output")]
"""An output that a state keeps for the next step."""
Key = Annotated[Tensor, Slot("K", "key")]
"""What a memory is addressed with, for writing and for reading (a query is a key): feature map, then normaliser."""
Value = Annotated[Tensor, Slot("V", "value")]
"""What is written, and whatever else the slow net emits as it is."""
RawKey = Annotated[Tensor, Slot("K", "value")]
"""A key or query that the cell itself makes positive, after something was added to it."""
RawRate = Annotated[Tensor, Slot("", "value")]
"""A rate that the cell itself squashes."""
Rate = Annotated[Tensor, Slot("", "rate")]
"""How strongly to write: in [0, 1]."""
Decay = Annotated[Tensor, Slot("", "decay")]
"""How much of the memory stays: in [0, 1], near 1 at the start of training."""
KeyDecay = Annotated[Tensor, Slot("K", "decay")]
"""How much of every column of the memory stays, one for each feature of a key."""
ValueDecay = Annotated[Tensor, Slot("V", "decay")]
"""How much of every row of the memory stays, one for each component of a value."""
KeyRate = Annotated[Tensor, Slot("K", "rate")]
"""A rate for each feature of a key."""
ValueRate = Annotated[Tensor, Slot("V", "rate")]
"""A rate for each component of a value."""
Control = Annotated[Tensor, Slot("", "control")]
"""A mark that comes with the data, not from a slow net: 0 or 1."""


def learn_sizes(slot: Slot, shape: Sequence[int], sizes: dict[str, int]) -> None:
    """Adds the sizes that follow from the shape of a tensor, from axes such as K, 4*K or 2*K+1."""
    axes = slot.axes.split()
    if len(axes) == len(shape):
        for axis, length in zip(axes, shape, strict=True):
            head, _, more = axis.partition("+")
            times, _, letter = head.rpartition("*")
            if letter.isalpha() and (times.isdigit() or not times) and (more.isdigit() or not more):
                sizes.setdefault(letter, (length - int(more or 0)) // int(times or 1))


def slots_of(kind: str, record: type) -> dict[str, Slot]:
    """The slots of the "Inputs", the "State" or the "Params" of a cell.

    Raises:
        InputError: it has no field, or one without a slot, or in a role that it cannot be in.
    """
    found = slots(record)
    require(bool(found), kind, "of at least one tensor", "none")
    for name, slot in found.items():
        require_name(f"role of {name}", slot.role, ROLES[kind])
    return found


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
    remedy = "Key, Value, Rate and others are there, Annotated[Tensor, Slot(axes, role)] is any other."
    require(is_slot(hint), name, "annotated with its axes", hint, remedy)
    return next(extra for extra in get_args(hint)[1:] if isinstance(extra, Slot))


def is_slot(hint: Any) -> bool:
    """Whether an annotation tells the axes of a tensor."""
    return any(isinstance(extra, Slot) for extra in get_args(hint)[1:])
