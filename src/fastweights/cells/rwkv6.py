"""The memory of RWKV-6."""

from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.rules.gla import gla
from fastweights.signature import KeyDecay, Matrix, RawKey, TensorSpec, Value


class RWKV6State(NamedTuple):
    W: Matrix


class RWKV6Inputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: Value
    decay: KeyDecay


class RWKV6Params(NamedTuple):
    bonus: Annotated[Tensor, TensorSpec("K", "gain")]


def rwkv6(state: RWKV6State, x: RWKV6Inputs, params: RWKV6Params) -> tuple[RWKV6State, Value]:
    """RWKV-6: gated linear attention with a bonus for new input.

        y = (W + v (bonus * k)^T) q
        W <- W diag(decay) + v k^T

    The newest association is read with its own weight, `bonus`.

    Source: Peng et al. 2024 (Eagle and Finch, arXiv:2404.05892), in the form of flash-linear-attention, `ops/rwkv6`.

    Can: fade.
    """
    y = state.W @ x.q + x.v * ((params.bonus * x.k) @ x.q)
    return RWKV6State(gla(state.W, x.k, x.v, x.decay)), y
