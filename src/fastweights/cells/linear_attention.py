"""Linear attention: the sum rule, read relative to all keys written so far."""

from typing import NamedTuple

from fastweights.rules.sum import sum as sum_rule
from fastweights.signature import Accumulator, Key, Matrix, Value, key_features

EPS = 1e-5
"""Added to the denominator, as in the papers' language-model code."""


class LinearAttentionState(NamedTuple):
    W: Matrix
    z: Accumulator


class LinearAttentionInputs(NamedTuple):
    q: Key
    k: Key
    v: Value


@key_features("elu", "none")
def linear_attention(state: LinearAttentionState, x: LinearAttentionInputs) -> tuple[LinearAttentionState, Value]:
    """Linear attention: a kernel in place of the softmax.

        W <- W + v k^T
        z <- z + k
        y = W q / (z . q)

    Source: Katharopoulos et al. 2020 (arXiv:2006.16236); Schlag et al. 2021 (arXiv:2102.11174), Eqs. 17-19.

    Can: accumulate.
    """
    W = sum_rule(state.W, x.k, x.v)
    z = state.z + x.k
    return LinearAttentionState(W, z), W @ x.q / (z @ x.q + EPS)
