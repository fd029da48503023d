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
    """y <- y + W_down f(W_up f(LN(y))) for each of L blocks, from y = q: every W by its own delta rule.

    f is elu + 1 over its sum. All heads share the LayerNorm. There is no recurrence: the blocks are depth, not time.
    The 44.3 million parameters of the paper's model need a slow network with twice the outputs of these equations.

    Source: the authors' code for Irie et al. 2021, Table 1; the paper prints another form, `printed-delta-mlp`.

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
