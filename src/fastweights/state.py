"""What every state can do, whatever memory it belongs to: `detach`, `to`, `members`, `save` and `load`."""

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


def with_methods(state: State) -> State:
    """Gives a NamedTuple of tensors, nested as one likes, the methods of a state.

    Cells do this to the states that they are annotated with; a state of a layer is decorated. A NamedTuple can have no
    base class, so the methods are put onto it; a field or a method of its own that has the name of one stays. torch
    learns of it, too: `torch.load(weights_only=True)` reads it, and `torch.export.save` writes programs that return it.
    """
    for method in (detach, to, members, save, load):
        if method.__name__ not in vars(state):
            setattr(state, method.__name__, method)
    torch.serialization.add_safe_globals([state])
    if state not in SUPPORTED_NODES:
        _register_namedtuple(state, serialized_type_name=f"{state.__module__}.{state.__qualname__}")
    return state


def detach(state: Any) -> Any:
    """The same numbers without their history, as between windows of truncated back-propagation."""
    return tree_map_only(Tensor, Tensor.detach, state)


@checked
def to(state: Any, target: torch.device | str | torch.dtype) -> Any:
    """The state on another device or, its numbers, in another floating dtype.

    Raises:
        InputError: the target is no device and no floating dtype.
    """
    if isinstance(target, torch.dtype):
        require(target.is_floating_point, "target", "a device or a floating dtype", target)
    else:
        target = _device(target)

    def move(leaf: Tensor) -> Tensor:
        return leaf if isinstance(target, torch.dtype) and not leaf.is_floating_point() else leaf.to(target)

    return tree_map_only(Tensor, move, state)


def _device(target: torch.device | str) -> torch.device:
    try:
        return torch.device(target)
    except RuntimeError:
        raise InputError(f"target must be a device or a floating dtype, got {target!r}. Try 'cpu' or 'cuda'.") from None


Members = Annotated[int | slice | Sequence[int] | Sequence[bool] | Tensor | np.ndarray, ANY_MEMBERS]


@checked
def members(state: Any, which: Members) -> Any:
    """The members of the batch that an int, a slice, a list or a tensor of ints or bools picks, repeated if it says so.

    This is how beam search reorders its hypotheses and how an agent keeps the environments that go on. One int picks a
    batch of one.

    Raises:
        InputError: there is no member of that number, or `which` picks in no way that is known.
    """
    sizes = [len(leaf) for leaf in tree_leaves(state) if isinstance(leaf, Tensor)]
    picked = which if isinstance(which, slice) or not sizes else _picked(torch.as_tensor(which), sizes[0])
    return tree_map_only(Tensor, lambda leaf: leaf[picked], state)


def _picked(which: Tensor, B: int) -> Tensor:
    """The members by number, int `[N]`, or marked among all of them, bool `[B]`."""
    if which.dtype == torch.bool:
        require(which.shape == (B,), "which", f"[B] with B={B}, if it is of bools", list(which.shape))
        return which
    if which.numel() == 0:
        which = which.long()
    whole = not (which.is_floating_point() or which.is_complex()) and which.ndim <= 1
    require(whole, "which", ANY_MEMBERS.text, f"{which.dtype} {list(which.shape)}")
    if which.numel() and can_be_read(which):
        least, most = (int(n) for n in which.aminmax())
        got = most if least == most else f"{least} to {most}"
        require(least >= -B and most < B, "which", f"from {-B} to {B - 1}, for a batch of {B}", got)
    return which.long().reshape(-1)


@checked
def save(state: Any, file: str | Path) -> None:
    """Writes the state to a safetensors file, whole or not at all."""
    files = _tensor_file()
    content = files.TensorFile(named(state), {"state": type(state).__name__})
    files.write_tensor_file(Path(file), content)


@checked
def load(state: Any, file: str | Path) -> Any:
    """The state that was saved to a file, bit by bit, on the device of this one, for any batch size.

    Only the structure of this state is used, as in `layer.initial_state(1).load(file)`. Nothing is unpickled.

    Raises:
        InputError: the file cannot be read, is damaged, or holds the state of another layer.
    """
    tensors, facts = _tensor_file().read_tensor_file(Path(file), "state")
    kind, wanted = type(state).__name__, named(state)
    remedy = "Load it as the state of the layer that it came from."
    require(facts.get("state") == kind, "state", f"a {kind}", f"{facts.get('state', 'none')} in {file}", remedy)
    unlike = sorted(wanted.keys() ^ tensors.keys())
    require(not unlike, "state", f"a {kind} of {', '.join(wanted)}", f"another {', '.join(unlike)} in {file}", remedy)
    for name, leaf in wanted.items():
        require(_alike(tensors[name], leaf), f"{name} of {file}", _outline(leaf), _outline(tensors[name]), remedy)
    sizes = {len(tensor) for tensor in tensors.values()}
    require(len(sizes) <= 1, "state", "of one batch size", f"{sorted(sizes)} in {file}")
    leaves, structure = tree_flatten_with_path(state)
    # Copies: numbers that begin anywhere in a file are added up in another order than those that begin at a vector.
    moved = [tensors[name].to(leaf.device, copy=True) for name, (_, leaf) in zip(wanted, leaves, strict=True)]
    return tree_unflatten(moved, structure)


def _tensor_file() -> Any:
    try:
        from fastweights.core import tensor_file
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} must be installed, got no such module. See fastweights[train].") from None
    return tensor_file


def named(state: Any) -> dict[str, Tensor]:
    """The tensors of a state by where they are in it, such as `layers.0.W`."""
    leaves, _ = tree_flatten_with_path(state)
    return {
        ".".join(str(getattr(key, "name", getattr(key, "idx", key))) for key in path): leaf for path, leaf in leaves
    }


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape[1:] == other.shape[1:] and one.is_floating_point() == other.is_floating_point()


def _outline(leaf: Tensor) -> str:
    shape = ", ".join(["B", *map(str, leaf.shape[1:])])
    return f"[{shape}] of {'floats' if leaf.is_floating_point() else leaf.dtype}"


def where(chosen: Tensor, state: Any, other: Any) -> Any:
    """One state for the members of the batch that are chosen (bool `[B]`), the other for the others."""

    def choose(mine: Tensor, theirs: Tensor) -> Tensor:
        return torch.where(chosen.view(-1, *[1] * (mine.ndim - 1)), mine, theirs)

    return tree_map(choose, state, other)
