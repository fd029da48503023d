"""Checks of the arguments of a call of a layer."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from fastweights.core.autocast import PRECISIONS, autocasts
from fastweights.core.errors import require
from fastweights.core.padding import check_lengths, remedy_for


def check_input(x: Tensor, size: int | None, like: Tensor | None) -> None:
    """Raises unless x is `[B, T, size]` with at least one member and step, of the dtype and on the device of `like`."""
    require(isinstance(x, Tensor), "x", "a tensor", type(x).__name__, remedy_for(x, "x"))
    if x.is_nested or x.layout != torch.strided:
        require(False, "x", "dense", "a nested tensor" if x.is_nested else x.layout, _dense(x))
    if like is None:
        require(x.is_floating_point(), "x", "of a floating dtype", x.dtype, "Use x.float().")
    elif like.dtype not in PRECISIONS:
        require(False, "layer", "in a floating dtype of 16 bits or more", like.dtype, "Use layer.to(torch.bfloat16).")
    elif x.dtype != like.dtype or x.device != like.device:
        _check_kind(x, like)
    # A size may be a symbol, which `in` would compare as an object.
    fits = x.ndim == 3 and (size is None or x.shape[-1] == size) and x.shape[0] > 0 and x.shape[1] > 0
    if not fits:
        requirement = f"[B, T, D] with {'' if size is None else f'D={size} and '}B and T of at least 1"
        require(False, "x", requirement, list(x.shape))


def _dense(x: Tensor) -> str:
    return "Use torch.nested.to_padded_tensor(x, 0.0) and lengths." if x.is_nested else "Use x.to_dense()."


def _check_kind(x: Tensor, like: Tensor) -> None:
    location = f"on {like.device} like the layer's parameters"
    require(x.device == like.device, "x", location, x.device, f"Use x.to('{like.device}') or layer.to('{x.device}').")
    casts = autocasts(x.device) and {x.dtype, like.dtype} <= {torch.float32, torch.get_autocast_dtype(x.device.type)}
    require(casts or x.dtype == like.dtype, "x", f"{like.dtype} like the layer's parameters", x.dtype, _cast(x, like))


def _cast(x: Tensor, like: Tensor) -> str:
    if x.is_complex():
        return "Use torch.view_as_real(x).flatten(-2), with twice the features."
    if x.dtype in PRECISIONS:
        return f"Use x.to({like.dtype}) or layer.to({x.dtype})."
    return f"Use x.to({like.dtype})" + (", or an embedding for tokens." if not x.is_floating_point() else ".")


def check_marks(x: Tensor, reset: Tensor | None, lengths: Tensor | None) -> None:
    """Raises unless `reset` is bool `[B, T]` and `lengths` int `[B]`, on the device of x, or they are None."""
    if reset is not None and not _marks(reset, x):
        _refuse_reset(x, reset)
    if lengths is not None:
        check_lengths(lengths, x.shape[0], x.device)


def _marks(reset: Tensor, x: Tensor) -> bool:
    fits = isinstance(reset, Tensor) and reset.dtype == torch.bool
    return fits and reset.shape == x.shape[:2] and reset.device == x.device


def _refuse_reset(x: Tensor, reset: Tensor) -> None:
    require(isinstance(reset, Tensor), "reset", "a tensor", type(reset).__name__, "Try torch.tensor(reset).")
    require(reset.dtype == torch.bool, "reset", "of dtype bool", reset.dtype, "Try reset.bool().")
    remedy = "Try reset.unsqueeze(1): a row for every member, a column for every step." if reset.ndim == 1 else ""
    B, T = x.shape[:2]
    require(reset.shape == x.shape[:2], "reset", f"[B, T] with B={B}, T={T}", list(reset.shape), remedy)
    require(False, "reset", f"on {x.device} like x", reset.device, f"Use reset.to('{x.device}').")


def check_controls(x: Tensor, controls: Mapping[str, Tensor] | None, names: tuple[str, ...], layer: str) -> None:
    """Raises unless all controls have names of the layer and one value per step of x."""
    if controls is None:
        return
    if not isinstance(controls, Mapping):
        remedy = "Name every signal: {'name': tensor}."
        require(False, "controls", "a mapping of names to tensors", type(controls).__name__, remedy)
    for name, mark in controls.items():
        requirement = f"among {', '.join(names)}" if names else f"left out for {layer}, which has none"
        require(name in names, "controls", requirement, repr(name))
        require(isinstance(mark, Tensor), name, "a tensor", type(mark).__name__, "Try torch.tensor(...).")
        require(not mark.is_complex(), name, "bool, int or floating", mark.dtype)
        require(mark.shape[:2] == x.shape[:2], name, f"[B, T] = {list(x.shape[:2])}", list(mark.shape))
        require(mark.device == x.device, name, f"on {x.device} like x", mark.device, f"Use .to('{x.device}').")


def fit_state(state: Any, template: Any, x: Tensor) -> Any:
    """Checks a state against `template`, a state for a batch of one, and returns it in the dtypes of the template.

    Raises:
        InputError: the structure, batch size, a shape, kind of dtype or device differs.
    """
    if _is_flat(state) and type(state) is type(template) and _is_flat(template) and _are_like(state, template, x):
        return type(state)(*(leaf.to(like.dtype) for leaf, like in zip(state, template, strict=True)))
    leaves, (expected, structure) = tree_leaves(state), tree_flatten(template)
    if type(state) is not type(template) or not _are_like(leaves, expected, x):
        # The message is built only if needed: under torch.compile it would specialise the sizes that it names.
        remedy = "Use the state of the last call of the layer or its initial_state."
        require(False, "state", _describe(template, x), _describe(state), remedy)
    cast = [leaf if leaf is None else leaf.to(like.dtype) for leaf, like in zip(leaves, expected, strict=True)]
    return tree_unflatten(cast, structure)


def _is_flat(state: Any) -> bool:
    """Whether the state is a flat NamedTuple of tensors, for which no traversal is needed. That saves microseconds."""
    return hasattr(state, "_fields") and all(isinstance(leaf, Tensor) for leaf in state)


def _are_like(leaves: Sequence[Any], expected: Sequence[Any], x: Tensor) -> bool:
    return len(leaves) == len(expected) and all(
        _is_like(leaf, like, x) for leaf, like in zip(leaves, expected, strict=True)
    )


def _is_like(leaf: Any, like: Any, x: Tensor) -> bool:
    if like is None:
        return leaf is None
    if not isinstance(leaf, Tensor) or leaf.shape[1:] != like.shape[1:] or leaf.shape[:1] != x.shape[:1]:
        return False
    same = leaf.is_floating_point() if like.is_floating_point() else leaf.dtype == like.dtype
    return same and leaf.device == x.device


def _describe(state: Any, x: Tensor | None = None) -> str:
    """Describes type, shapes and dtypes of a state, or of a state that fits x."""
    leaves = [_describe_leaf(leaf, x) for leaf in tree_leaves(state)]
    return f"{type(state).__name__}({', '.join(leaves)})"


def _describe_leaf(leaf: Any, x: Tensor | None) -> str:
    if not isinstance(leaf, Tensor):
        return repr(leaf) if leaf is None else type(leaf).__name__
    shape = list(leaf.shape) if x is None else [len(x), *leaf.shape[1:]]
    kind = str(leaf.dtype).removeprefix("torch.")
    return f"{kind} {shape} on {leaf.device if x is None else x.device}"
