"""Rewrites matrix products as sums of elementwise products, for any number of leading axes and without a reshape.

PyTorch folds leading axes into rows and calls `mm`. The compiler distributes sums of products, also in the gradient,
and needs `sum_k a[i, k] b[k, j]` for that. Products and cumulative products become chains of multiplications.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """`[..., i, k] @ [..., k, j]`, where either may be a vector."""
    if b.ndim == 1:
        return (a * b).sum(-1)
    if a.ndim == 1:
        return (a.unsqueeze(-1) * b).sum(-2)
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x weight^T + bias`."""
    y = matmul(x, weight.mT) if x.ndim > 1 else matmul(weight, x)
    return y if bias is None else y + bias


def einsum(equation: str, *operands: Any) -> Tensor:
    """An einsum with one letter per axis. Other equations use PyTorch."""
    tensors = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    placeholders, arrow, out = equation.replace(" ", "").partition("->")
    letters = [list(part) for part in placeholders.split(",")]
    plain = arrow and all(part == list(dict.fromkeys(part)) and "." not in part for part in letters)
    if not plain:
        return torch.einsum(equation, *operands)
    summed = [letter for letter in dict.fromkeys("".join(map("".join, letters))) if letter not in out]
    axes = [*out, *summed]
    product = _aligned(tensors[0], letters[0], axes)
    for tensor, part in zip(tensors[1:], letters[1:], strict=True):
        product = product * _aligned(tensor, part, axes)
    return product.sum([len(out) + n for n in range(len(summed))]) if summed else product


def _aligned(tensor: Tensor, letters: Sequence[str], axes: Sequence[str]) -> Tensor:
    """The tensor with one axis for every letter of `axes`, of size 1 where the tensor has none."""
    ordered = tensor.permute([letters.index(a) for a in axes if a in letters])
    for place, letter in enumerate(axes):
        if letter not in letters:
            ordered = ordered.unsqueeze(place)
    return ordered


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x^T weight[o] y + bias` for every o."""
    read = (weight * x[..., None, :, None] * y[..., None, None, :]).sum((-2, -1))
    return read if bias is None else read + bias


def prod(x: Tensor, *how: Any, **named: Any) -> Tensor:
    """The product of all elements as a chain, because the gradient of `torch.prod` branches on zeros."""
    plain = not how and not named
    if not plain and not (len(how) == 1 and isinstance(how[0], int) and not named):
        return torch.prod(x, *how, **named)
    return reduce(torch.mul, (x.flatten() if plain else x).unbind(0 if plain else how[0]))


def cumprod(x: Tensor, dim: int) -> Tensor:
    """The cumulative product as a chain."""
    return torch.stack(list(accumulate(x.unbind(dim), torch.mul)), dim)


PRODUCTS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys([torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm], matmul),
    **dict.fromkeys([torch.mv, Tensor.mv, torch.bmm, Tensor.bmm, torch.dot, Tensor.dot], matmul),
    **dict.fromkeys([torch.prod, Tensor.prod], prod),
    **dict.fromkeys([torch.cumprod, Tensor.cumprod], cumprod),
    torch.nn.functional.linear: linear,
    torch.nn.functional.bilinear: bilinear,
    torch.einsum: einsum,
    torch.functional.einsum: einsum,
}
"""The replacements of functions that multiply. Other functions stay as they are."""
