"""The memory of Hope: Titans that compute their own keys, values and rates."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.normalisers.l2 import l2
from fastweights.signature import Key, RawKey, TensorSpec, key_features


class HopeState(NamedTuple):
    """Shift of M from its start, with the rows of all memories stacked."""

    M: Annotated[Tensor, TensorSpec("3*K+2 K", "memory")]


class HopeInputs(NamedTuple):
    q: Key
    x: RawKey


class HopeParams(NamedTuple):
    """Learned start of M."""

    M: Annotated[Tensor, TensorSpec("3*K+2 K", "weight")]


@key_features("identity", "l2")
def hope(state: HopeState, x: HopeInputs, params: HopeParams) -> tuple[HopeState, RawKey]:
    """HOPE: self-modifying memories that learn to predict values.

        [y', k, v, eta, alpha] = M x
        M <- M (alpha - eta k k^T) - eta (M k - M v) k^T
        y = M_y q

    Every memory in M learns to map the keys that M computes to the values that it would compute from v. The state is
    the difference from the learned initial M. k and v have length 1, eta is below 1/2, and alpha is near 1 at the start
    of training. Otherwise the gradient and the decay together erase too much, and the memory diverges.

    Source: Behrouz et al. 2025 (Nested Learning, arXiv:2512.24695), Eqs. 83-97. It follows secondary descriptions and
    was not compared with the authors' code.

    Can: overwrite, fade, recur, modify itself.
    """
    K, M = x.q.shape[-1], params.M + state.M
    _, k, v, rates = (M @ x.x).split([K, K, K, 2])
    k, v, eta, alpha = l2(k), l2(v), rates[0].sigmoid() / 2, (rates[1] + 3).sigmoid()
    new = alpha * M - eta * torch.outer(2 * (M @ k) - M @ v, k)
    return HopeState(new - params.M), new[:K] @ x.q
