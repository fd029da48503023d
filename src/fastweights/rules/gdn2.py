"""The rule of Gated DeltaNet-2."""

import torch

from fastweights.signature import Key, KeyDecay, KeyRate, Matrix, Value, ValueRate, key_features


@key_features("identity", "l2")
def gdn2(W: Matrix, k: Key, v: Value, decay: KeyDecay, erase: KeyRate, write: ValueRate) -> Matrix:
    """Gated DeltaNet-2: separate gates for erasing and writing.

        M = W diag(decay)
        W <- M + (write * v - M (erase * k)) k^T

    If all gates equal beta, it is the rule `kda`.

    Source: Hatamizadeh et al. 2026 (Gated DeltaNet-2, arXiv:2605.22791). It follows a description of the update and was
    not compared with the authors' code.

    Can: overwrite, fade.
    """
    faded = W * decay
    return faded + torch.outer(write * v - faded @ (erase * k), k)
