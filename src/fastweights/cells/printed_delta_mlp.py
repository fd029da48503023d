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
    """h_l = W_l f(h_(l-1)) for l = 1..L, h_0 = q, y = h_L, f = softmax: every W_l by its own delta rule.

    Keys go through f, too. With L = 1 it is DeltaNet with softmax for a feature map.

    Source: Irie et al. 2021, Eqs. 13-14; the authors' code computes another form, `delta-mlp`.

    Can: overwrite.
    """
    W = torch.vmap(delta)(state.W, x.k.softmax(-1), x.v, x.beta)
    y = x.q
    for W_l in W:
        y = W_l @ y.softmax(-1)
    return PrintedDeltaMLPState(W), y
