"""The rule of Gated DeltaNet-2."""

import torch

from fastweights.signature import Key, KeyDecay, KeyRate, Matrix, Value, ValueRate, keyed_by


@keyed_by("identity", "l2")
def gdn2(W: Matrix, k: Key, v: Value, decay: KeyDecay, erase: KeyRate, write: ValueRate) -> Matrix:
    """W <- M + (write * v - M (erase * k)) k^T, M = W diag(decay): what is erased and what is written are gated apart.

    With all gates equal to beta it is `kda`.

    Source: Gated DeltaNet-2, from a description of its update; no code of its authors was compared.

    Can: overwrite, fade.
    """
    faded = W * decay
    return faded + torch.outer(write * v - faded @ (erase * k), k)
