"""The rule of Longhorn."""

import torch

from fastweights.signature import Key, Matrix, Value, ValueRate, keyed_by


@keyed_by("identity", "none")
def longhorn(W: Matrix, k: Key, v: Value, beta: ValueRate) -> Matrix:
    """W <- (1 - e (k * k)^T) * W + (e * v) k^T, e = beta / (1 + beta k.k): the step that solves for its own end.

    The new W minimises |W - W_old|^2 + sum_i beta_i (W k - v)_i^2, whose solution W + e * (v - W k) k^T is taken
    with the diagonal of k k^T alone. It needs no decay: what fades is where k is.

    Source: Liu et al. 2024 (Longhorn), from its objective; no code of its authors was compared.

    Can: fade.
    """
    e = beta / (1 + beta * (k @ k))
    return (1 - torch.outer(e, k * k)) * W + torch.outer(e * v, k)
