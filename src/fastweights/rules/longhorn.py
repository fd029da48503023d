"""The rule of Longhorn."""

import torch

from fastweights.signature import Key, Matrix, Value, ValueRate, key_features


@key_features("identity", "none")
def longhorn(W: Matrix, k: Key, v: Value, beta: ValueRate) -> Matrix:
    """Longhorn: a closed-form step of online least squares.

        e = beta / (1 + beta k . k)
        W <- (1 - e (k * k)^T) * W + (e * v) k^T

    The new W minimises |W - W_old|^2 + sum_i beta_i (W k - v)_i^2. The solution W + e * (v - W k) k^T is approximated
    with the diagonal of k k^T. The rule has no decay; features fade where the key is large.

    Source: Liu et al. 2024 (Longhorn, arXiv:2407.14207), derived from its objective and not compared with the authors'
    code.

    Can: fade.
    """
    e = beta / (1 + beta * (k @ k))
    return (1 - torch.outer(e, k * k)) * W + torch.outer(e * v, k)
