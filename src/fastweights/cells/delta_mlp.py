"""The Delta MLP: a deep fast network with residual connections, as in the authors' code."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.cells._layer_norm import standardise
from fastweights.cells._positive_keys import positive_keys
from fastweights.rules.delta import delta
from fastweights.signature import RawKey, TensorSpec


class DeltaMLPState(NamedTuple):
    """L blocks of a matrix up to 4 K units and one back."""

    up: Annotated[Tensor, TensorSpec("L 4*K K", "memory")]
    down: Annotated[Tensor, TensorSpec("L K 4*K", "memory")]


class DeltaMLPInputs(NamedTuple):
    q: RawKey
    up_k: Annotated[Tensor, TensorSpec("L K", "value")]
    up_v: Annotated[Tensor, TensorSpec("L 4*K", "value")]
    up_beta: Annotated[Tensor, TensorSpec("L", "rate")]
    down_k: Annotated[Tensor, TensorSpec("L 4*K", "value")]
    down_v: Annotated[Tensor, TensorSpec("L K", "value")]
    down_beta: Annotated[Tensor, TensorSpec("L", "rate")]


class DeltaMLPParams(NamedTuple):
    gain: Annotated[Tensor, TensorSpec("L K", "shared gain")]
    bias: Annotated[Tensor, TensorSpec("L K", "shared bias")]


def delta_mlp(
    state: DeltaMLPState, x: DeltaMLPInputs, params: DeltaMLPParams
) -> tuple[DeltaMLPState, Annotated[Tensor, TensorSpec("K", "value")]]:
    """Delta MLP: residual feed-forward blocks of fast weights.

        h_0 = q
        h_l = h_(l-1) + W_l f(U_l f(LN(h_(l-1)))), l = 1, ..., L
        y = h_L

    The delta rule writes every U_l and W_l. f is elu + 1 divided by its sum. All heads share the LayerNorm. The blocks
    are layers of one time step; there is no recurrence. The paper's model has 44.3 million parameters, for which the
    slow network needs twice the outputs of these equations.

    Source: the authors' code for Irie et al. 2021 (arXiv:2106.06295), Table 1. The paper prints another form,
    `printed-delta-mlp`.

    Can: overwrite.
    """
    each = torch.vmap(delta)
    up = each(state.up, positive_keys(x.up_k), x.up_v, x.up_beta)
    down = each(state.down, positive_keys(x.down_k), x.down_v, x.down_beta)
    y = x.q
    for W_up, W_down, gain, bias in zip(up, down, params.gain, params.bias, strict=True):
        hidden = W_up @ positive_keys(standardise(y) * gain + bias)
        y = y + W_down @ positive_keys(hidden)
    return DeltaMLPState(up, down), y
