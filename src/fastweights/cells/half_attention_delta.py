"""DeltaNet with the output normalised as in attention."""

from typing import NamedTuple

from fastweights.cells.linear_attention import EPS, LinearAttentionState
from fastweights.rules.delta import delta
from fastweights.signature import Key, Rate, Value


class HalfAttentionDeltaInputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    beta: Rate


def half_attention_delta(
    state: LinearAttentionState, x: HalfAttentionDeltaInputs
) -> tuple[LinearAttentionState, Value]:
    """Delta rule with attention normalisation of reads only.

        W <- W + beta (v - W k) k^T
        z <- z + k
        y = W q / (z . q)

    Source: Schlag et al. 2021 (arXiv:2102.11174), Sec. 4.2; the variant of the authors' code that normalises only the
    output.

    Can: overwrite.
    """
    W = delta(state.W, x.k, x.v, x.beta)
    z = state.z + x.k
    return LinearAttentionState(W, z), W @ x.q / (z @ x.q + EPS)
