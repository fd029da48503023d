"""HGRN2: gated linear attention whose keys are one minus its forget gates."""

from typing import NamedTuple

from fastweights.rules.gla import gla
from fastweights.signature import KeyDecay, Matrix, RawKey, Value


class HGRN2State(NamedTuple):
    W: Matrix


class HGRN2Inputs(NamedTuple):
    q: RawKey
    v: Value
    decay: KeyDecay


def hgrn2(state: HGRN2State, x: HGRN2Inputs) -> tuple[HGRN2State, Value]:
    """HGRN2: gated linear attention with keys tied to the decay.

        W <- W diag(decay) + v (1 - decay)^T
        y = W q

    Source: Qin et al. 2024 (HGRN2, arXiv:2404.07904): the rule `gla` with k = 1 - decay.

    Can: fade.
    """
    W = gla(state.W, 1 - x.decay, x.v, x.decay)
    return HGRN2State(W), W @ x.q
