"""A linear memory that is trained by Muon."""

from typing import Any, NamedTuple

import torch

from fastweights.cells._newton_schulz import orthogonalised
from fastweights.core.arguments import Size, checked
from fastweights.core.family import family
from fastweights.signature import Decay, Key, Matrix, Rate, Value, key_features


class MuonState(NamedTuple):
    W: Matrix
    surprise: Matrix


class MuonInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    momentum: Rate
    beta: Rate


@family
@checked
def make_muon(steps: Size = 3) -> Any:
    """The step with `steps` Newton-Schulz iterations per token.

    Raises:
        InputError: `steps` is less than 1.
    """

    @key_features("identity", "l2")
    def muon(state: MuonState, x: MuonInputs) -> tuple[MuonState, Value]:
        """Muon: momentum with orthogonalised steps on the recall error.

            S <- momentum S + (v - W k) k^T
            W <- decay W + beta NS(S)
            y = W q

        NS brings the singular values of S near 1, so that directions that are rarely written move as far as the others.
        Muon has five Newton-Schulz iterations, `make_muon(5)`. Three keep float32 within the library's tolerance. With
        a window of several tokens it is `atlas`.

        Source: Jordan et al. 2024 (Muon, https://kellerjordan.github.io/posts/muon); as an inner optimiser, Zhang et
        al. 2025 (Test-Time Training Done Right, arXiv:2505.23884), there for chunks of tokens.

        Can: overwrite, fade.
        """
        surprise = x.momentum * state.surprise + torch.outer(x.v - state.W @ x.k, x.k)
        W = x.decay * state.W + x.beta * orthogonalised(surprise, steps)
        return MuonState(W, surprise), W @ x.q

    return muon


muon = make_muon()
