"""Methods of states: `detach`, `to`, `select`, `save` and `load`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import (
    SUPPORTED_NODES,
    _register_namedtuple,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_map_only,
    tree_unflatten,
)

from fastweights.core.arguments import Requirement, checked
from fastweights.core.errors import InputError, require
from fastweights.core.padding import can_be_read

State = TypeVar("State", bound=type)

ANY_MEMBERS = Requirement(
    "a whole number, a slice, or a list or a tensor [N] of whole numbers or bools", lambda _: True
)


def register_state(state: State) -> State:
    """Adds the methods of a state to a NamedTuple of tensors, which may be nested.

    Cells call it for the states in their annotations. Decorate the state of a custom layer with it. A NamedTuple cannot
    have a base class, so the methods are set on it. Fields and methods of the same names are not replaced. The type is
    also registered with torch: `torch.load(weights_only=True)` reads it, and `torch.export.save` saves programs that
    return it.

    Args:
        state: NamedTuple class.

    Returns:
        The same class.
    """
    for method in (detach, to, select, save, load):
        if method.__name__ not in vars(state):
            setattr(state, method.__name__, method)
    torch.serialization.add_safe_globals([state])
    if state not in SUPPORTED_NODES:
        _register_namedtuple(state, serialized_type_name=f"{state.__module__}.{state.__qualname__}")
    return state


def detach(state: Any) -> Any:
    """Detaches a state from its autograd history, for truncated backpropagation through time.

    Args:
        state: State of a layer or a model.

    Returns:
        The detached state.
    """
    return tree_map_only(Tensor, Tensor.detach, state)


@checked
def to(state: Any, target: torch.device | str | torch.dtype) -> Any:
    """Moves a state to another device, or converts its floating-point tensors to another dtype.

    Args:
        state: State of a layer or a model.
        target: Device or floating-point dtype.

    Returns:
        The new state.

    Raises:
        InputError: the target is neither a device nor a floating-point dtype.
    """
    if isinstance(target, torch.dtype):
        require(target.is_floating_point, "target", "a device or a floating-point dtype", target)
    else:
        target = _device(target)

    def move(leaf: Tensor) -> Tensor:
        return leaf if isinstance(target, torch.dtype) and not leaf.is_floating_point() else leaf.to(target)

    return tree_map_only(Tensor, move, state)


def _device(target: torch.device | str) -> torch.device:
    try:
        return torch.device(target)
    except RuntimeError:
        raise InputError(
            f"target must be a device or a floating-point dtype, got {target!r}. Try 'cpu' or 'cuda'."
        ) from None


Members = Annotated[int | slice | Sequence[int] | Sequence[bool] | Tensor | np.ndarray, ANY_MEMBERS]


@checked
def select(state: Any, index: Members) -> Any:
    """Selects members of the batch.

    Beam search reorders its hypotheses with it, and an agent selects the environments that continue.

    Args:
        state: State of a layer or a model.
        index: Index, slice, or list or tensor `[N]` of indices or bools. An index may occur several times. One int
            selects a batch of one.

    Returns:
        The state of the selected members.

    Raises:
        InputError: an index is out of range, or `index` is of another kind.
    """
    sizes = [len(leaf) for leaf in tree_leaves(state) if isinstance(leaf, Tensor)]
    members = index if isinstance(index, slice) or not sizes else _index_of(torch.as_tensor(index), sizes[0])
    return tree_map_only(Tensor, lambda leaf: leaf[members], state)


def _index_of(index: Tensor, B: int) -> Tensor:
    """Indices of members, int `[N]`, or a mask over all of them, bool `[B]`."""
    if index.dtype == torch.bool:
        require(index.shape == (B,), "index", f"[B] with B={B} for a mask of bools", list(index.shape))
        return index
    if index.numel() == 0:
        index = index.long()
    whole = not (index.is_floating_point() or index.is_complex()) and index.ndim <= 1
    require(whole, "index", ANY_MEMBERS.text, f"{index.dtype} {list(index.shape)}")
    if index.numel() and can_be_read(index):
        least, most = (int(n) for n in index.aminmax())
        got = most if least == most else f"{least} to {most}"
        require(least >= -B and most < B, "index", f"from {-B} to {B - 1}, for a batch of {B}", got)
    return index.long().reshape(-1)


@checked
def save(state: Any, file: str | Path) -> None:
    """Saves a state to a safetensors file, atomically.

    Args:
        state: State of a layer or a model.
        file: Path of the file.
    """
    files = _tensor_file()
    content = files.TensorFile(named_tensors(state), {"state": type(state).__name__})
    files.write_tensor_file(Path(file), content)


@checked
def load(state: Any, file: str | Path) -> Any:
    """Loads a saved state, bit-identical and of any batch size. Nothing is unpickled.

    Args:
        state: State with the structure and on the device of the result, such as `layer.initial_state(1)`.
        file: Path of the file.

    Returns:
        The saved state.

    Raises:
        InputError: the file cannot be read, is damaged, or has the state of another layer.
    """
    tensors, facts = _tensor_file().read_tensor_file(Path(file), "state")
    kind, expected = type(state).__name__, named_tensors(state)
    remedy = "Load it as the state of the layer that saved it."
    require(facts.get("state") == kind, "state", f"a {kind}", f"{facts.get('state', 'none')} in {file}", remedy)
    different = sorted(expected.keys() ^ tensors.keys())
    require(
        not different,
        "state",
        f"a {kind} of {', '.join(expected)}",
        f"another {', '.join(different)} in {file}",
        remedy,
    )
    for name, leaf in expected.items():
        require(
            _is_compatible(tensors[name], leaf), f"{name} of {file}", _describe(leaf), _describe(tensors[name]), remedy
        )
    sizes = {len(tensor) for tensor in tensors.values()}
    require(len(sizes) <= 1, "state", "a state whose tensors have one batch size", f"{sorted(sizes)} in {file}")
    leaves, structure = tree_flatten_with_path(state)
    # Copies: sums over unaligned memory, as in a mapped file, are computed in another order than over aligned memory.
    moved = [tensors[name].to(leaf.device, copy=True) for name, (_, leaf) in zip(expected, leaves, strict=True)]
    return tree_unflatten(moved, structure)


def _tensor_file() -> Any:
    try:
        from fastweights.core import tensor_file
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} must be installed, got no such module. See fastweights[train].") from None
    return tensor_file


def named_tensors(state: Any) -> dict[str, Tensor]:
    """Lists the tensors of a state by their paths in it, such as `layers.0.W`.

    Args:
        state: State of a layer or a model.

    Returns:
        The tensors by path.
    """
    leaves, _ = tree_flatten_with_path(state)
    return {
        ".".join(str(getattr(key, "name", getattr(key, "idx", key))) for key in path): leaf for path, leaf in leaves
    }


def _is_compatible(one: Tensor, other: Tensor) -> bool:
    return one.shape[1:] == other.shape[1:] and one.is_floating_point() == other.is_floating_point()


def _describe(leaf: Tensor) -> str:
    shape = ", ".join(["B", *map(str, leaf.shape[1:])])
    return f"[{shape}] of {'floats' if leaf.is_floating_point() else leaf.dtype}"


def where(condition: Tensor, state: Any, other: Any) -> Any:
    """Combines two states: members of the batch from one or the other.

    Args:
        condition: Whether a member is from `state`, bool `[B]`.
        state: State of the members where `condition` is true.
        other: State of the other members.

    Returns:
        The combined state.
    """

    def choose(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(condition.view(-1, *[1] * (x.ndim - 1)), x, y)

    return tree_map(choose, state, other)
