"""The memory of Hope: Titans that compute their own keys, values and rates."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.normalisers.l2 import l2
from fastweights.signature import Key, RawKey, TensorSpec, keyed_by


class HopeState(NamedTuple):
    """Shift of M from its start, with the rows of all memories stacked."""

    M: Annotated[Tensor, TensorSpec("3*K+2 K", "memory")]


class HopeInputs(NamedTuple):
    q: Key
    x: RawKey


class HopeParams(NamedTuple):
    """Learned start of M."""

    M: Annotated[Tensor, TensorSpec("3*K+2 K", "weight")]


@keyed_by("identity", "l2")
def hope(state: HopeState, x: HopeInputs, params: HopeParams) -> tuple[HopeState, RawKey]:
    """M <- M (alpha - eta k k^T) - eta (M k - M v) k^T, [y', k, v, eta, alpha] = M x, y = M_y q: programs itself.

    Every memory in M learns to map the keys that M itself computes to the values that it would compute from v. The
    state is the shift of M from its learned start. Here k and v have length 1, eta is below 1/2, and alpha is near 1 at
    first. Otherwise the gradient and the decay together erase too much, and the memory oscillates ever further.

    Source: Behrouz et al. 2025 (Nested Learning), Eqs. 83-97, as read in second-hand notes of it.

    Can: overwrite, fade, recur, modify itself.
    """
    K, M = x.q.shape[-1], params.M + state.M
    _, k, v, rates = (M @ x.x).split([K, K, K, 2])
    k, v, eta, alpha = l2(k), l2(v), rates[0].sigmoid() / 2, (rates[1] + 3).sigmoid()
    new = alpha * M - eta * torch.outer(2 * (M @ k) - M @ v, k)
    return HopeState(new - params.M), new[:K] @ x.q
