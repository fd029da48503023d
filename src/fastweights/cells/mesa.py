"""Mesa: the least-squares fit to all inputs so far, solved at every step."""

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fastweights.core.arguments import Size, checked
from fastweights.core.family import family
from fastweights.signature import Decay, Key, Matrix, Rate, TensorSpec, Value, key_features


class MesaState(NamedTuple):
    G: Annotated[Tensor, TensorSpec("K K", "gram")]
    W: Matrix


class MesaInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    beta: Rate


class MesaParams(NamedTuple):
    ridge: Annotated[Tensor, TensorSpec("K", "bias")]


@family
@checked
def make_mesa(steps: Size = 4) -> Any:
    """The step with `steps` conjugate-gradient iterations per token.

    Raises:
        InputError: `steps` is less than 1.
    """

    @key_features("identity", "l2")
    def mesa(state: MesaState, x: MesaInputs, params: MesaParams) -> tuple[MesaState, Value]:
        """MesaNet: ridge regression of values on keys, at every step.

            G <- decay G + beta k k^T
            W <- decay W + beta v k^T
            y = W (G + Lambda)^-1 q

        The solution is the limit of many delta-rule steps. Lambda = 1/4 + softplus(ridge) is one number per feature.
        Conjugate gradients with a diagonal preconditioner solve (G + Lambda)^-1 q in 4 iterations. Each iteration costs
        as much as a delta-rule step. flash-linear-attention uses 30 iterations without the preconditioner,
        `make_mesa(30)`.

        Source: von Oswald et al. 2025 (MesaNet, arXiv:2506.05233), in the form of flash-linear-attention,
        `ops/mesa_net/naive.py`.

        Can: accumulate, overwrite, fade.
        """
        G = x.decay * state.G + x.beta * torch.outer(x.k, x.k)
        W = x.decay * state.W + x.beta * torch.outer(x.v, x.k)
        return MesaState(G, W), W @ solve(G, 0.25 + softplus(params.ridge), x.q, steps)

    return mesa


def solve(G: Tensor, ridge: Tensor, q: Tensor, steps: int) -> Tensor:
    """(G + diag(ridge))^-1 q by conjugate gradients from 0, preconditioned by the diagonal."""
    preconditioner = 1 / (G.diagonal() + ridge)
    floor = 1e-12  # For keys of length 1, a residual with this square is converged.
    z, r = torch.zeros_like(q), q  # r = q - (G + diag(ridge)) z
    p = preconditioner * r
    length = r @ p
    for _ in range(min(steps, len(q))):  # exact after as many iterations as there are features
        product = G @ p + ridge * p
        step_size = length / (p @ product + floor)
        z, r = z + step_size * p, r - step_size * product
        previous, length = length, r @ (preconditioner * r)
        p = preconditioner * r + length / (previous + floor) * p
    return z


mesa = make_mesa()
