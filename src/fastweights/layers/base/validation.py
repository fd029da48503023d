"""Checks of the arguments of a layer call. The error message has one line, with a remedy."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from fastweights.core.autocast import PRECISIONS, autocasts
from fastweights.core.errors import InputError, invalid
from fastweights.core.padding import check_lengths, remedy_for


def check_input(x: Tensor, size: int | None, like: Tensor | None) -> None:
    """Raises unless x is `[B, T, size]` with at least one member and step, of the dtype and on the device of `like`."""
    if not isinstance(x, Tensor):
        raise invalid("x", "a tensor", type(x).__name__, remedy_for(x, "x"))
    if x.is_nested or x.layout != torch.strided:
        raise invalid("x", "dense", "a nested tensor" if x.is_nested else x.layout, _dense(x))
    if like is None:
        if not x.is_floating_point():
            raise invalid("x", "a floating-point tensor", x.dtype, "Use x.float().")
    elif like.dtype not in PRECISIONS:
        raise invalid(
            "layer",
            "a layer in a floating-point dtype of at least 16 bits",
            like.dtype,
            "Use layer.to(torch.bfloat16).",
        )
    elif x.dtype != like.dtype or x.device != like.device:
        _check_dtype_and_device(x, like)
    # Every size may be a symbol: `in` would compare it as an object.
    fits = x.ndim == 3 and (size is None or x.shape[-1] == size) and x.shape[0] > 0 and x.shape[1] > 0
    if not fits:
        expected = f"[B, T, D] with {'' if size is None else f'D={size} and '}B and T of at least 1"
        raise invalid("x", expected, list(x.shape))


def _dense(x: Tensor) -> str:
    return "Use torch.nested.to_padded_tensor(x, 0.0) and lengths." if x.is_nested else "Use x.to_dense()."


def _check_dtype_and_device(x: Tensor, like: Tensor) -> None:
    if x.device != like.device:
        remedy = f"Use x.to('{like.device}') or layer.to('{x.device}')."
        raise invalid("x", f"on {like.device} like the layer's parameters", x.device, remedy)
    casts = autocasts(x.device) and {x.dtype, like.dtype} <= {torch.float32, torch.get_autocast_dtype(x.device.type)}
    if not casts and x.dtype != like.dtype:
        raise invalid("x", f"{like.dtype} like the layer's parameters", x.dtype, _cast(x, like))


def _cast(x: Tensor, like: Tensor) -> str:
    if x.is_complex():
        return "Use torch.view_as_real(x).flatten(-2), with twice the features."
    if x.dtype in PRECISIONS:
        return f"Use x.to({like.dtype}) or layer.to({x.dtype})."
    return f"Use x.to({like.dtype})" + (", or an embedding for tokens." if not x.is_floating_point() else ".")


def check_marks(x: Tensor, reset: Tensor | None, lengths: Tensor | None) -> None:
    """Raises unless `reset` is bool `[B, T]` and `lengths` int `[B]`, on the device of x, or they are None."""
    if reset is not None and not _is_reset(reset, x):
        raise _invalid_reset(x, reset)
    if lengths is not None:
        check_lengths(lengths, x.shape[0], x.device)


def _is_reset(reset: Tensor, x: Tensor) -> bool:
    fits = isinstance(reset, Tensor) and reset.dtype == torch.bool
    return fits and reset.shape == x.shape[:2] and reset.device == x.device


def _invalid_reset(x: Tensor, reset: Tensor) -> InputError:
    if not isinstance(reset, Tensor):
        return invalid("reset", "a tensor", type(reset).__name__, "Try torch.tensor(reset).")
    if reset.dtype != torch.bool:
        return invalid("reset", "a bool tensor", reset.dtype, "Try reset.bool().")
    if reset.shape != x.shape[:2]:
        B, T = x.shape[:2]
        remedy = "Try reset.unsqueeze(1): a row for every member, a column for every step." if reset.ndim == 1 else ""
        return invalid("reset", f"[B, T] with B={B}, T={T}", list(reset.shape), remedy)
    return invalid("reset", f"on {x.device} like x", reset.device, f"Use reset.to('{x.device}').")


def check_controls(x: Tensor, controls: Mapping[str, Tensor] | None, names: tuple[str, ...], layer: str) -> None:
    """Raises unless all controls have names of the layer and one value per step of x."""
    if controls is None:
        return
    if not isinstance(controls, Mapping):
        remedy = "Name every mark: {'name': tensor}."
        raise invalid("controls", "a mapping of names to tensors", type(controls).__name__, remedy)
    for name, mark in controls.items():
        if name not in names:
            known = f"among {', '.join(names)}" if names else f"left out for {layer}, which takes none"
            raise invalid("controls", known, repr(name))
        _check_control(name, mark, x)


def _check_control(name: str, mark: Tensor, x: Tensor) -> None:
    if not isinstance(mark, Tensor):
        raise invalid(name, "a tensor", type(mark).__name__, "Try torch.tensor(...).")
    if mark.is_complex():
        raise invalid(name, "bool, int or floating", mark.dtype)
    if mark.shape[:2] != x.shape[:2]:
        raise invalid(name, f"[B, T] = {list(x.shape[:2])}", list(mark.shape))
    if mark.device != x.device:
        raise invalid(name, f"on {x.device} like x", mark.device, f"Use .to('{x.device}').")


def fit_state(state: Any, template: Any, x: Tensor) -> Any:
    """The state in the dtypes of `template`, a state for a batch of one.

    Raises:
        InputError: the structure, batch size, a shape, dtype or device differs from that of `template`.
    """
    if _is_flat(state) and type(state) is type(template) and _is_flat(template) and _are_like(state, template, x):
        return type(state)(*(leaf.to(want.dtype) for leaf, want in zip(state, template, strict=True)))
    leaves, (expected, structure) = tree_leaves(state), tree_flatten(template)
    if type(state) is not type(template) or not _are_like(leaves, expected, x):
        # The message is built only if needed: under torch.compile it would make the sizes in it constants.
        remedy = "Take it from the layer's last call or its initial_state."
        raise invalid("state", _describe(template, x), _describe(state), remedy)
    cast = [leaf if leaf is None else leaf.to(want.dtype) for leaf, want in zip(leaves, expected, strict=True)]
    return tree_unflatten(cast, structure)


def _is_flat(state: Any) -> bool:
    """Whether it is a NamedTuple of tensors, as most states are. Walking a nested state takes microseconds."""
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
    """Type, shapes and dtypes of a state; with x, of the state that fits x."""
    leaves = [_describe_leaf(leaf, x) for leaf in tree_leaves(state)]
    return f"{type(state).__name__}({', '.join(leaves)})"


def _describe_leaf(leaf: Any, x: Tensor | None) -> str:
    if not isinstance(leaf, Tensor):
        return repr(leaf) if leaf is None else type(leaf).__name__
    shape = list(leaf.shape) if x is None else [len(x), *leaf.shape[1:]]
    kind = str(leaf.dtype).removeprefix("torch.")
    return f"{kind} {shape} on {leaf.device if x is None else x.device}"
