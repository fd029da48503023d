"""TTT-MLP: a network of two layers that is trained on every token it reads."""

from math import pi
from typing import Annotated, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu

from fastweights.signature import Rate, RawKey, TensorSpec, key_features


class TTTMLPState(NamedTuple):
    """Shift of each matrix from its learned start."""

    up: Annotated[Tensor, TensorSpec("4*K K", "memory")]
    down: Annotated[Tensor, TensorSpec("K 4*K", "memory")]


class TTTMLPInputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: RawKey
    beta: Rate


class TTTMLPParams(NamedTuple):
    """Learned starts of the matrices."""

    up: Annotated[Tensor, TensorSpec("4*K K", "weight")]
    down: Annotated[Tensor, TensorSpec("K 4*K", "weight")]


@key_features("identity", "none")
def ttt_mlp(state: TTTMLPState, x: TTTMLPInputs, params: TTTMLPParams) -> tuple[TTTMLPState, RawKey]:
    """TTT-MLP: a two-layer network trained on every token.

        f(x) = x + LN(W_2 gelu(W_1 x))
        W <- W - beta / 10 grad(|f(k) - v|^2 / 2)
        y = f(q)

    Each step is on one token; for speed, the paper takes the gradients of 16 tokens at once. LN has no gain and bias.
    The factor 1/10 is the paper's. LN adds 1e-3 to the variance. The state is the difference from the learned initial
    matrices, so that a training step also affects streams in progress.

    Source: Sun et al. 2024 (Learning to (Learn at Test Time), arXiv:2407.04620), Sec. 2.

    Can: overwrite, recur.
    """
    up, down = params.up + state.up, params.down + state.down
    a = up @ x.k
    hidden = gelu(a)
    z, scale = _normalised(down @ hidden)
    e = x.k + z - x.v
    d_read = x.beta / 10 * scale * (e - e.mean() - z * (e * z).mean())
    # gelu(a) is a times the share of a normal distribution below a.
    slope = (1 + torch.erf(a * 0.5**0.5)) / 2 + a * (-a.square() / 2).exp() / (2 * pi) ** 0.5
    new = TTTMLPState(
        state.up - torch.outer(slope * (d_read @ down), x.k),
        state.down - torch.outer(d_read, hidden),
    )
    read, _ = _normalised((params.down + new.down) @ gelu((params.up + new.up) @ x.q))
    return new, x.q + read


def _normalised(z: Tensor) -> tuple[Tensor, Tensor]:
    """LN(z), and the reciprocal of the standard deviation."""
    centred = z - z.mean()
    scale = (centred.square().mean() + 1e-3).rsqrt()
    return centred * scale, scale
