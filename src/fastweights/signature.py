"""Annotations of the parameters of rules and cells: the axes of a tensor and its role.

A signature such as `delta(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix` is the whole specification: the scan
checks shapes against it, a layer sizes its slow network from it, and the contract tests draw random inputs for it.

Letters: K is the key size, V the value size, any other letter a size that the cell defines. A digit is a fixed size,
and "4*K+1" is computed from another one. Batch, time and heads never appear, since rules and cells are written for one
head and one step.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints

from torch import Tensor

from fastweights.core.errors import require, require_name

__all__ = [
    "Accumulator",
    "Angles",
    "Control",
    "Decay",
    "Key",
    "KeyDecay",
    "KeyMaps",
    "KeyRate",
    "Matrix",
    "Output",
    "Rate",
    "RawKey",
    "RawRate",
    "RecurrentMatrix",
    "TensorSpec",
    "Value",
    "ValueDecay",
    "ValueRate",
    "computes_rates",
    "is_slot",
    "key_features",
    "learn_sizes",
    "size",
    "slot_of",
    "slots",
    "slots_of",
]


class KeyMaps(NamedTuple):
    """Feature map and normaliser that turn outputs of a slow network into keys and queries.

    Args:
        feature_map: Name of the feature map.
        qk_norm: Name of the normaliser.
    """

    feature_map: str = "elu"
    qk_norm: str = "sum"


Step = TypeVar("Step", bound=Callable[..., Any])


def key_features(feature_map: str, qk_norm: str) -> Callable[[Step], Step]:
    """Sets the default feature map and normaliser for the keys of a rule or a cell.

    Without it they are ELU + 1 and the sum, as in the delta-rule models of the papers.

    Args:
        feature_map: Name from `fastweights list feature-maps`.
        qk_norm: Name from `fastweights list normalisers`.

    Returns:
        A decorator of rules and steps.
    """

    def declare(step: Step) -> Step:
        step.key_maps = KeyMaps(feature_map, qk_norm)  # type: ignore[attr-defined]
        return step

    return declare


def computes_rates(rates: Callable[..., Mapping[str, Tensor]]) -> Callable[[Step], Step]:
    """Names the learning rates that a step computes itself, so that `fastweights inspect` can show them.

    Args:
        rates: Function `(state, x, params) -> {name: rate}` of one head, called with the state before the write.
            Without `params` for a cell that has none. A rate is a scalar or a vector.

    Returns:
        A decorator of steps.
    """

    def declare(step: Step) -> Step:
        step.rates = rates  # type: ignore[attr-defined]
        return step

    return declare


class TensorSpec(NamedTuple):
    """Annotation of a tensor of one head: its axes and its role.

    The role determines how a layer computes or initialises the tensor.

    - Inputs have the role "key", "value", "angle", "rate", "decay" or "control". After "shared", one projection serves
      all heads.
    - States have the role "memory", "gram" for a sum of k k^T, "contraction" for a symmetric matrix with eigenvalues
      from 0 to 1, "count" for a whole number without a gradient, or "output" for an output that the next step reads.
    - Parameters have the role "weight" (a map from its last axis), "small" (a factor that starts near 0), "gain",
      "bias" or "constant". After "shared", all heads have the same; after "fixed", it is not trained.

    Args:
        axes: Axes, separated by blanks, such as "V K"; empty for a scalar. K is the key size, V the value size, and any
            other letter a size of the cell. A digit is a fixed size, and "4*K+1" is computed.
        role: Role, one of the above.
    """

    axes: str
    role: str

    @property
    def kind(self) -> str:
        """The role without "shared" or "fixed"."""
        return self.role.split()[-1]

    @property
    def is_shared(self) -> bool:
        """Whether all heads share the tensor."""
        return self.role.startswith("shared")

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Computes the shape of the tensor.

        Args:
            sizes: Sizes by letter, such as {"K": 16, "V": 32}.

        Returns:
            The shape, without batch, time and heads.
        """
        return tuple([size(axis, sizes) for axis in self.axes.split()])


def size(axis: str, sizes: Mapping[str, int]) -> int:
    """Computes the size of an axis: a letter, a digit, or sums and products of these.

    Args:
        axis: Axis, such as "4*K+1".
        sizes: Sizes by letter.

    Returns:
        The size.

    Raises:
        InputError: a letter has no size.

    Example:
        >>> size("4*K+1", {"K": 3})
        13
    """
    # Lists, since `torch.compile` does not support generators here.
    terms = [[int(f) if f.isdigit() else _known(f, sizes) for f in term.split("*")] for term in axis.split("+")]
    return sum([prod(term) for term in terms])


def _known(letter: str, sizes: Mapping[str, int]) -> int:
    require(letter in sizes, "sizes", f"given for every letter, {letter} too", list(sizes))
    return sizes[letter]


ROLES = {
    "Inputs": [
        f"{shared}{role}"
        for role in ("key", "value", "angle", "rate", "decay", "control")
        for shared in ("", "shared ")
    ],
    "State": ["memory", "gram", "contraction", "count", "output"],
    "Params": [
        f"{how}{role}" for role in ("weight", "small", "gain", "bias", "constant") for how in ("", "shared ", "fixed ")
    ],
}
"""Possible roles of the fields of each record."""

Matrix = Annotated[Tensor, TensorSpec("V K", "memory")]
"""Fast weights from keys to values."""
Accumulator = Annotated[Tensor, TensorSpec("K", "memory")]
"""A sum of keys."""
RecurrentMatrix = Annotated[Tensor, TensorSpec("V V", "memory")]
"""Fast weights from values to values."""
Output = Annotated[Tensor, TensorSpec("V", "output")]
"""An output in the state, for the next step."""
Key = Annotated[Tensor, TensorSpec("K", "key")]
"""A key or a query, after feature map and normaliser."""
Value = Annotated[Tensor, TensorSpec("V", "value")]
"""A value, or any other output of the slow network that is used unchanged."""
RawKey = Annotated[Tensor, TensorSpec("K", "value")]
"""A key or query that the cell itself makes positive, after it has added a term."""
RawRate = Annotated[Tensor, TensorSpec("", "value")]
"""A rate that the cell itself passes through a sigmoid."""
Angles = Annotated[Tensor, TensorSpec("K", "angle")]
"""Angles of rotations, one per feature of a key, which are 0 at the start of training: random ones would mix up what
the memory stores."""
Rate = Annotated[Tensor, TensorSpec("", "rate")]
"""Write strength in [0, 1]."""
Decay = Annotated[Tensor, TensorSpec("", "decay")]
"""Decay factor of the memory in [0, 1], near 1 at the start of training."""
KeyDecay = Annotated[Tensor, TensorSpec("K", "decay")]
"""Decay factors of the columns of the memory, one per feature of a key."""
ValueDecay = Annotated[Tensor, TensorSpec("V", "decay")]
"""Decay factors of the rows of the memory, one per component of a value."""
KeyRate = Annotated[Tensor, TensorSpec("K", "rate")]
"""Rates, one per feature of a key."""
ValueRate = Annotated[Tensor, TensorSpec("V", "rate")]
"""Rates, one per component of a value."""
Control = Annotated[Tensor, TensorSpec("", "control")]
"""A control signal, 0 or 1, that comes with the data and not from the slow network."""


def learn_sizes(slot: TensorSpec, shape: Sequence[int], sizes: dict[str, int]) -> None:
    """Adds the sizes that follow from the shape of a tensor, from axes such as K, 4*K or 2*K+1.

    Args:
        slot: Axes and role of the tensor.
        shape: Shape of the tensor.
        sizes: Sizes by letter; the new ones are added in place.
    """
    axes = slot.axes.split()
    if len(axes) == len(shape):
        for axis, length in zip(axes, shape, strict=True):
            head, _, more = axis.partition("+")
            times, _, letter = head.rpartition("*")
            if letter.isalpha() and (times.isdigit() or not times) and (more.isdigit() or not more):
                sizes.setdefault(letter, (length - int(more or 0)) // int(times or 1))


def slots_of(kind: str, record: type) -> dict[str, TensorSpec]:
    """Reads the axes and roles of the fields of a state, of inputs or of parameters.

    Args:
        kind: "Inputs", "State" or "Params".
        record: NamedTuple with annotated fields.

    Returns:
        The `TensorSpec` of every field, by name.

    Raises:
        InputError: the record has no field, or a field without a `TensorSpec` or with a role of another record.
    """
    by_name = slots(record)
    require(bool(by_name), kind, "a record with at least one tensor", "none")
    for name, slot in by_name.items():
        require_name(f"role of {name}", slot.role, ROLES[kind])
    return by_name


def slots(record: type) -> dict[str, TensorSpec]:
    """Reads the axes and roles of the fields of a NamedTuple.

    Args:
        record: NamedTuple with annotated fields.

    Returns:
        The `TensorSpec` of every field, by name, in order.

    Raises:
        InputError: a field has no `TensorSpec`.

    Example:
        >>> class State(NamedTuple):
        ...     W: Matrix
        >>> slots(State)
        {'W': TensorSpec(axes='V K', role='memory')}
    """
    return {name: slot_of(hint, name) for name, hint in get_type_hints(record, include_extras=True).items()}


def slot_of(hint: Any, name: str) -> TensorSpec:
    """Returns the `TensorSpec` in an annotation.

    Args:
        hint: Annotation.
        name: Name of the field, for the error message.

    Returns:
        The `TensorSpec`.

    Raises:
        InputError: the annotation has no `TensorSpec`.
    """
    remedy = "Use Key, Value, Rate or another of fastweights.signature, or Annotated[Tensor, TensorSpec(axes, role)]."
    require(is_slot(hint), name, "annotated with its axes", hint, remedy)
    return next(extra for extra in get_args(hint)[1:] if isinstance(extra, TensorSpec))


def is_slot(hint: Any) -> bool:
    """Whether an annotation has a `TensorSpec`.

    Args:
        hint: Annotation.

    Returns:
        True or False.
    """
    return any(isinstance(extra, TensorSpec) for extra in get_args(hint)[1:])
