"""The Delta MLP: a deep fast network, as printed in the paper."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.rules.delta import delta
from fastweights.signature import RawKey, TensorSpec


class PrintedDeltaMLPState(NamedTuple):
    """L square matrices."""

    W: Annotated[Tensor, TensorSpec("L K K", "memory")]


class PrintedDeltaMLPInputs(NamedTuple):
    q: RawKey
    k: Annotated[Tensor, TensorSpec("L K", "value")]
    v: Annotated[Tensor, TensorSpec("L K", "value")]
    beta: Annotated[Tensor, TensorSpec("L", "rate")]


def printed_delta_mlp(
    state: PrintedDeltaMLPState, x: PrintedDeltaMLPInputs
) -> tuple[PrintedDeltaMLPState, Annotated[Tensor, TensorSpec("K", "value")]]:
    """Delta MLP as printed in the paper: an MLP of fast weights.

        h_0 = q
        h_l = W_l f(h_(l-1)), l = 1, ..., L
        y = h_L

    The delta rule writes every W_l. f is the softmax, also for the keys. With L = 1 it is DeltaNet with softmax as its
    feature map.

    Source: Irie et al. 2021 (arXiv:2106.06295), Eqs. 13-14. The authors' code computes another form, `delta-mlp`.

    Can: overwrite.
    """
    W = torch.vmap(delta)(state.W, x.k.softmax(-1), x.v, x.beta)
    y = x.q
    for W_l in W:
        y = W_l @ y.softmax(-1)
    return PrintedDeltaMLPState(W), y
