"""What every state can do, whatever memory it belongs to: `detach`, `to` and `index`."""

from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

State = TypeVar("State", bound=type)


def with_methods(state: State) -> State:
    """Gives a NamedTuple of tensors, nested as one likes, the methods of a state.

    Cells do this to the states that they are annotated with; a state of a layer is decorated. A NamedTuple can have no
    base class, so the methods are put onto it.
    """
    for method in (detach, to, index):
        setattr(state, method.__name__, method)
    return state


def detach(state: Any) -> Any:
    """The same numbers without their history, as between windows of truncated back-propagation."""
    return tree_map_only(Tensor, Tensor.detach, state)


def to(state: Any, target: torch.device | str | torch.dtype) -> Any:
    """The state on another device or, its numbers, in another floating dtype."""

    def move(leaf: Tensor) -> Tensor:
        return leaf if isinstance(target, torch.dtype) and not leaf.is_floating_point() else leaf.to(target)

    return tree_map_only(Tensor, move, state)


def index(state: Any, members: Any) -> Any:
    """The members of the batch that an int, a slice, a list or a tensor of ints or bools picks, repeated if it says so.

    This is how beam search reorders its hypotheses and how an agent keeps the environments that go on. One int picks a
    batch of one.
    """
    members = slice(members, members + 1 or None) if isinstance(members, int) else members
    return tree_map_only(Tensor, lambda leaf: leaf[members], state)
