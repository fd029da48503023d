"""Fast-weight product-key memory: many slots that two short lists of keys address."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Rate, TensorSpec, Value

EPS = 1e-3
"""Added to squared distances, so that a key that is met exactly has a finite weight."""
Halves = Annotated[Tensor, TensorSpec("2 K", "value")]


class ProductKeyMemoryState(NamedTuple):
    """The values of 8 x 8 slots."""

    values: Annotated[Tensor, TensorSpec("64 V", "memory")]


class ProductKeyMemoryInputs(NamedTuple):
    q: Halves
    k: Halves
    v: Value
    beta: Rate


class ProductKeyMemoryParams(NamedTuple):
    """The two lists of 8 keys."""

    keys: Annotated[Tensor, TensorSpec("2 8 K", "weight")]


def product_key_memory(
    state: ProductKeyMemoryState, x: ProductKeyMemoryInputs, params: ProductKeyMemoryParams
) -> tuple[ProductKeyMemoryState, Value]:
    """Product-key memory: sparse slots with two-part addresses.

        a = s_1 s_2^T
        M <- M + beta a (v - M^T a)^T
        y = M^T b

    A half of k is compared with each key of its list: s is inversely proportional to the squared distance, and sums to
    1. b is the same for q. So 16 keys address 64 slots. The step is one of gradient descent on beta |v - M^T a|^2 / 2.
    The paper differs in size and schedule: it has 512 keys per list, of which it reads the nearest 8, takes steps for
    chunks of tokens, and also moves the keys, which are slow weights here.

    Source: Zhao and Jones 2026 (Fast-weight Product Key Memory, arXiv:2601.00671), Eqs. 11 and 13-15 for one token and
    the score of Sec. 3.5. It follows a transcript of the equations; Lample et al. 2019.

    Can: overwrite.
    """
    address = _address(x.k, params.keys)
    values = state.values + x.beta * torch.outer(address, x.v - address @ state.values)
    return ProductKeyMemoryState(values), _address(x.q, params.keys) @ values


def _address(halves: Tensor, keys: Tensor) -> Tensor:
    """The weight of every slot, `[64]`, for the halves of a key or a query, `[2, K]`."""
    near = 1 / ((halves.unsqueeze(-2) - keys).square().sum(-1) + EPS)
    first, second = near / near.sum(-1, keepdim=True)
    return torch.outer(first, second).flatten()
