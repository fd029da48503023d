"""Mesa: the least squares fit to all that was read, solved at every step."""

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fastweights.core.arguments import Size, checked
from fastweights.core.family import family
from fastweights.signature import Decay, Key, Matrix, Rate, Slot, Value, keyed_by


class MesaState(NamedTuple):
    G: Annotated[Tensor, Slot("K K", "gram")]
    W: Matrix


class MesaInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    beta: Rate


class MesaParams(NamedTuple):
    ridge: Annotated[Tensor, Slot("K", "bias")]


@family
@checked
def make_mesa(steps: Size = 4) -> Any:
    """The step with so many conjugate gradients a token.

    Raises:
        InputError: there is no step.
    """

    @keyed_by("identity", "l2")
    def mesa(state: MesaState, x: MesaInputs, params: MesaParams) -> tuple[MesaState, Value]:
        """G <- decay G + beta k k^T, W <- decay W + beta v k^T, y = W (G + Lambda)^-1 q: ridge regression over time.

        What a delta rule comes to after many steps, at once. Lambda = 1/4 + softplus(ridge), one number a feature.
        (G + Lambda)^-1 q is found by conjugate gradients, every feature scaled by the diagonal: 4 steps, each of which
        costs as much as one of the delta rule; flash-linear-attention takes 30 without the scaling, `make_mesa(30)`.

        Source: von Oswald et al. 2025 (MesaNet), as read in flash-linear-attention, `ops/mesa_net/naive.py`.

        Can: accumulate, overwrite, fade.
        """
        G = x.decay * state.G + x.beta * torch.outer(x.k, x.k)
        W = x.decay * state.W + x.beta * torch.outer(x.v, x.k)
        return MesaState(G, W), W @ _solved(G, 0.25 + softplus(params.ridge), x.q, steps)

    return mesa


def _solved(G: Tensor, ridge: Tensor, q: Tensor, steps: int) -> Tensor:
    """(G + diag(ridge))^-1 q by conjugate gradients from 0, each feature by its own share of the diagonal."""
    own = 1 / (G.diagonal() + ridge)
    nothing = 1e-12  # Beside a residual of this square, of keys of length 1, there is nothing left to move by.
    z, r = torch.zeros_like(q), q  # r = q - (G + diag(ridge)) z
    p = own * r
    length = r @ p
    for _ in range(min(steps, len(q))):  # after as many as there are features it is solved
        moved = G @ p + ridge * p
        by = length / (p @ moved + nothing)
        z, r = z + by * p, r - by * moved
        before, length = length, r @ (own * r)
        p = own * r + length / (before + nothing) * p
    return z


mesa = make_mesa()
