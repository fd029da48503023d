"""The selective scan of Mamba."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Matrix, RawKey, TensorSpec, Value, ValueRate


class SelectiveScanState(NamedTuple):
    W: Matrix


class SelectiveScanInputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: Value
    dt: ValueRate


class SelectiveScanParams(NamedTuple):
    """Decay rates -A, positive, and the weight D of the path from input to output."""

    rates: Annotated[Tensor, TensorSpec("V K", "gain")]
    skip: Annotated[Tensor, TensorSpec("V", "gain")]


def selective_scan(
    state: SelectiveScanState, x: SelectiveScanInputs, params: SelectiveScanParams
) -> tuple[SelectiveScanState, Value]:
    """Selective scan (Mamba): every value component has its own step size.

        W <- exp(-d r) * W + (d * v) k^T
        y = W q + s * v

    d is the input `dt`, r the parameter `rates` and s the parameter `skip`. Mamba calls k, q and v B, C and x, and -r
    is its A. Its channels share k and q, its step sizes are a softplus, and its rates start at 1, 2, ..., K in every
    row.

    Source: Gu and Dao 2023 (Mamba, arXiv:2312.00752), Eqs. 2 and 4 as discretised in the authors'
    `selective_scan_interface.py`.

    Can: fade.
    """
    W = torch.exp(-(x.dt[:, None] * params.rates)) * state.W + torch.outer(x.dt * x.v, x.k)
    return SelectiveScanState(W), W @ x.q + params.skip * x.v
