"""The short causal convolution in front of many memories."""

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu

from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require
from fastweights.core.family import family
from fastweights.signature import TensorSpec, Value


class ShortConvolutionInputs(NamedTuple):
    v: Value


@family
@checked
def make_short_convolution(width: Size = 4, activation: bool = True) -> Any:
    """The step over `width` time steps, with SiLU as activation or without an activation.

    Raises:
        InputError: `width` is less than 2.
    """
    require(width >= 2, "width", "at least 2", width, "A width of 1 needs no state.")

    class State(NamedTuple):
        past: Annotated[Tensor, TensorSpec(f"{width - 1} V", "memory")]

    class Params(NamedTuple):
        weight: Annotated[Tensor, TensorSpec(f"{width} V", "weight")]
        bias: Annotated[Tensor, TensorSpec("V", "bias")]

    def short_convolution(state: State, x: ShortConvolutionInputs, params: Params) -> tuple[State, Value]:
        """Short causal convolution: filters every channel over n time steps.

            y_t = silu(sum_i w_i * v_(t-n+i) + b), i = 1, ..., n

        The state holds the last n - 1 inputs, the oldest first. `make_short_convolution(n, False)` has no SiLU.

        Source: Gu and Dao 2023 (Mamba, arXiv:2312.00752), Sec. 3.4, after Fu et al. 2023 (H3, arXiv:2212.14052), Sec.
        3.

        Can: fade.
        """
        # A concatenation of all inputs would be a copy of the state in every time step.
        past, now = params.weight.split([width - 1, 1])
        y = (past * state.past).sum(0) + now[0] * x.v + params.bias
        return State(torch.cat([state.past[1:], x.v[None]])), silu(y) if activation else y

    return short_convolution


short_convolution = make_short_convolution()
