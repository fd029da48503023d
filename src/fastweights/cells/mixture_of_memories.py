"""Mixture of memories: a router writes every token to two of four memories."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Key, TensorSpec, Value, key_features

CHOSEN = 2
"""Number of memories that a token is written to and read from, besides the shared one."""


class MixtureOfMemoriesState(NamedTuple):
    """Four memories that tokens are routed to, and last the one that every token is written to."""

    W: Annotated[Tensor, TensorSpec("5 V K", "memory")]


class MixtureOfMemoriesInputs(NamedTuple):
    q: Key
    k: Annotated[Tensor, TensorSpec("5 K", "key")]
    v: Annotated[Tensor, TensorSpec("5 V", "value")]
    decay: Annotated[Tensor, TensorSpec("5", "decay")]
    beta: Annotated[Tensor, TensorSpec("5", "rate")]
    route: Annotated[Tensor, TensorSpec("4", "value")]


@key_features("identity", "l2")
def mixture_of_memories(
    state: MixtureOfMemoriesState, x: MixtureOfMemoriesInputs
) -> tuple[MixtureOfMemoriesState, Value]:
    """Mixture of memories: tokens are routed to gated delta rules.

        W_m <- decay_m W_m + beta_m (v_m - decay_m W_m k_m) k_m^T
        y = (sum_m g_m W_m) q

    The memories m are the two with the highest routes and a shared one. g is the softmax of the two highest routes, and
    1 for the shared memory. The other memories neither fade nor change, so that tokens of one kind do not disturb those
    of another. Every memory has its own key, value and rates.

    Source: Du et al. 2025 (MoM: Linear Sequence Modeling with Mixture-of-Memories, arXiv:2502.13685), with the gated
    delta rule, in the form of flash-linear-attention, `layers/mom.py`.

    Can: overwrite, fade.
    """
    higher = (x.route > x.route.unsqueeze(-1)).to(x.route.dtype).sum(-1)
    is_chosen = (higher < CHOSEN).to(x.route.dtype)
    scores = is_chosen * (x.route - x.route.amax()).exp()
    shared = torch.ones_like(x.route[:1])
    writes = torch.cat([is_chosen, shared])
    # Memories that are not chosen have a decay of 1 and a rate of 0.
    faded = (1 - writes * (1 - x.decay)).unsqueeze(-1).unsqueeze(-1) * state.W
    error = x.v - (faded @ x.k.unsqueeze(-1)).squeeze(-1)
    W = faded + ((writes * x.beta).unsqueeze(-1) * error).unsqueeze(-1) * x.k.unsqueeze(-2)
    weights = torch.cat([scores / scores.sum(), shared])
    return MixtureOfMemoriesState(W), weights @ (W @ x.q)
