"""The rule of normalised least mean squares."""

import torch

from fastweights.signature import Key, Matrix, Rate, Value, key_features

EPS = 1e-6
"""Least squared length of a key that is divided by, so that a zero key writes nothing and has finite gradients."""


@key_features("identity", "none")
def nlms(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    """Normalised LMS: the delta rule for keys of any length.

        W <- W + beta (v - W k) k^T / (k . k)

    With beta = 1 the new W retrieves v from k exactly, whatever the length of k. All rates below 2 are stable. With
    keys of length 1 it is the `delta` rule.

    Source: Nagumo and Noda 1967 (A Learning Method for System Identification); Albert and Gardner 1967.

    Can: overwrite.
    """
    return W + torch.outer(v - W @ k, beta / (k @ k).clamp(min=EPS) * k)
