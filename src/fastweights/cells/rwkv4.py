"""The memory of RWKV-4."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import TensorSpec, Value

PerValue = Annotated[Tensor, TensorSpec("V", "memory")]


class RWKV4State(NamedTuple):
    """Sums a and b times e^-m, since the exponentials alone would overflow, and the exponent m."""

    a: PerValue
    b: PerValue
    m: PerValue


class RWKV4Inputs(NamedTuple):
    k: Value
    v: Value


class RWKV4Params(NamedTuple):
    """Logarithm of the decay rate, and the bonus u of the newest value."""

    decay: Annotated[Tensor, TensorSpec("V", "bias")]
    bonus: Annotated[Tensor, TensorSpec("V", "bias")]


def rwkv4(state: RWKV4State, x: RWKV4Inputs, params: RWKV4Params) -> tuple[RWKV4State, Value]:
    """RWKV-4: attention over values with exponential weights that fade.

        w = exp(decay)
        y = (a + exp(u + k) * v) / (b + exp(u + k))
        a <- exp(-w) * a + exp(k) * v
        b <- exp(-w) * b + exp(k)

    a and b are stored multiplied by e^-m with m <- max(m - w, k), which does not change the output. In the authors'
    code m starts at -1e38, so that keys below -80 have an effect from the first time step.

    Source: Peng et al. 2023 (RWKV, arXiv:2305.13048), Eqs. 19-22 of appendix D.

    Can: fade.
    """
    newest, faded = x.k + params.bonus, state.m - torch.exp(params.decay)
    top, m = torch.maximum(state.m, newest), torch.maximum(faded, x.k)
    old, new = (state.m - top).exp(), (newest - top).exp()
    y = (old * state.a + new * x.v) / (old * state.b + new)
    fade, write = (faded - m).exp(), (x.k - m).exp()
    return RWKV4State(fade * state.a + write * x.v, fade * state.b + write, m), y
