"""The short causal convolution in front of many memories."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu

from fastweights.core.arguments import checked
from fastweights.core.family import family
from fastweights.signature import TensorSpec, Value


class ShortConvolutionState(NamedTuple):
    """The last S inputs, the oldest first."""

    past: Annotated[Tensor, TensorSpec("S V", "memory")]


class ShortConvolutionInputs(NamedTuple):
    v: Value


class ShortConvolutionParams(NamedTuple):
    """S + 1 weights per channel, the weight of the newest input last, and a bias per channel."""

    weight: Annotated[Tensor, TensorSpec("S+1 V", "weight")]
    bias: Annotated[Tensor, TensorSpec("V", "bias")]


@family
@checked
def make_short_convolution(activation: bool = True) -> Callable[..., Any]:
    """The step with SiLU as activation, or without an activation."""

    def short_convolution(
        state: ShortConvolutionState, x: ShortConvolutionInputs, params: ShortConvolutionParams
    ) -> tuple[ShortConvolutionState, Value]:
        """y_t = silu(sum_i weight_i * v_(t-S+i) + bias), i = 0, ..., S: filters every channel over S + 1 time steps.

        `make_short_convolution(False)` is the step without SiLU.

        Source: Gu and Dao 2023 (Mamba), Sec. 3.4, after Fu et al. 2023 (H3), Sec. 3.

        Can: fade.
        """
        window = torch.cat([state.past, x.v[None]])
        y = (params.weight * window).sum(0) + params.bias
        return ShortConvolutionState(window[1:]), silu(y) if activation else y

    return short_convolution


short_convolution = make_short_convolution()
