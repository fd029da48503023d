"""Gated linear attention with a normaliser: the gated rule, read relative to the decayed sum of keys."""

from typing import NamedTuple

from torch import Tensor

from fastweights.cells.linear_attention import EPS, LinearAttentionState
from fastweights.rules.gated import gated
from fastweights.signature import Key, Rate, Value, key_features


class GatedAttentionInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    beta: Rate


@key_features("elu", "none")
def gated_attention(state: LinearAttentionState, x: GatedAttentionInputs) -> tuple[LinearAttentionState, Value]:
    """Gated linear attention with normalised reads.

        W <- (1 - beta) W + beta v k^T
        z <- (1 - beta) z + beta k
        y = W q / (z . q)

    Source: Peng et al. 2021 (arXiv:2103.02143), Sec. 3.2 (gated random feature attention); Schlag et al. 2021
    (arXiv:2102.11174), appendix B.

    Can: fade.
    """
    W = gated(state.W, x.k, x.v, x.beta)
    z: Tensor = (1 - x.beta) * state.z + x.beta * x.k
    return LinearAttentionState(W, z), W @ x.q / (z @ x.q + EPS)
