"""Atlas: a memory that fits a window of the past by orthogonalised momentum."""

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from fastweights.cells._newton_schulz import orthogonalised
from fastweights.core.arguments import Count, Size, checked
from fastweights.core.family import family
from fastweights.signature import Decay, Key, Matrix, Rate, TensorSpec, Value, key_features


@family
@checked
def make_atlas(window: Size = 4, steps: Count = 2) -> Any:
    """The step over `window` tokens, with `steps` Newton-Schulz iterations; `steps=0` is OmegaNet.

    Raises:
        InputError: the window is empty.
    """
    State: Any = _state(window)

    @key_features("identity", "l2")
    def atlas(state: Any, x: AtlasInputs) -> tuple[Any, Value]:
        """Atlas: momentum with a Muon step over a window of tokens.

            S <- momentum S + sum_i g_i (v_i - W k_i) k_i^T
            W <- decay W + beta NS(S)
            y = W q

        The sum is over the last 4 tokens i, so that one token does not undo the previous one. NS is two Newton-Schulz
        iterations, which move the singular values of S towards 1, as in the optimiser Muon. The paper uses five,
        `make_atlas(4, 5)`. With zero iterations it is OmegaNet. A feature map can make the keys nonlinear.

        Source: Behrouz et al. 2025 (Atlas, arXiv:2505.23735), the Omega rule and Sec. 5; Jordan et al. 2024 (Muon) for
        the coefficients.

        Can: overwrite, fade.
        """
        keys, values, gates = (
            torch.cat([old[1:], new[None]])
            for old, new in ((state.keys, x.k), (state.values, x.v), (state.gates, x.gate))
        )
        errors = values - keys @ state.W.mT
        surprise = x.momentum * state.surprise + (gates[:, None] * errors).mT @ keys
        W = x.decay * state.W + x.beta * orthogonalised(surprise, steps)
        return State(W, surprise, keys, values, gates), W @ x.q

    atlas.__annotations__ |= {"state": State, "return": tuple[State, Value]}
    return atlas


def _state(window: int) -> Any:
    """The type of the state: the memory, its momentum, and the keys, values and gates of the window."""
    slots = {"keys": f"{window} K", "values": f"{window} V", "gates": f"{window}"}
    past = [(name, Annotated[Tensor, TensorSpec(axes, "memory")]) for name, axes in slots.items()]
    return NamedTuple("AtlasState", [("W", Matrix), ("surprise", Matrix), *past])


class AtlasInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    decay: Decay
    momentum: Rate
    gate: Rate
    beta: Rate


atlas = make_atlas()
