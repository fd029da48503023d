"""The rule of error-free linear attention."""

import torch

from fastweights.signature import Key, Matrix, Rate, Value, key_features

EPS = 1e-6
"""Least squared length of a key that is divided by. Below it the step size is beta, its limit for short keys."""


@key_features("identity", "none")
def efla(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    """Error-free linear attention: the delta rule in continuous time.

        a = (1 - exp(-beta k . k)) / (k . k)
        W <- W + a (v - W k) k^T

    The solution is taken after the time beta. The delta rule is one Euler step of the same equation, which is unstable
    for long keys. Here no key is too long: the longer the key, the more of the old value is replaced.

    Source: Lei et al. 2025 (Error-Free Linear Attention is a Free Lunch, arXiv:2512.12602), its closed form for a
    rank-1 matrix k k^T.

    Can: overwrite.
    """
    length = (k @ k).clamp(min=EPS)
    return W + torch.outer(v - W @ k, -torch.expm1(-beta * length) / length * k)
