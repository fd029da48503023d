"""Activations of flash-linear-attention. They are computed in float32, and have the dtype of their first argument."""

from torch import Tensor
from torch.nn import functional
from torch.nn.functional import linear, silu

from fastweights.core.autocast import at_least_float32


def swish(x: Tensor) -> Tensor:
    """x sigmoid(x)."""
    return silu(at_least_float32(x)).to(x.dtype)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return at_least_float32(x).sigmoid().to(x.dtype)


def logsigmoid(x: Tensor, temperature: float = 1.0) -> Tensor:
    """log(sigmoid(x)) / temperature."""
    return (functional.logsigmoid(at_least_float32(x)) / temperature).to(x.dtype)


def elu_p1(x: Tensor) -> Tensor:
    """elu(x) + 1."""
    return (functional.elu(at_least_float32(x)) + 1).to(x.dtype)


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    """swish(x) y."""
    return (silu(at_least_float32(x)) * at_least_float32(y)).to(x.dtype)


def swiglu_linear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear map of `swiglu`."""
    return linear(swiglu(x, y).to(weight.dtype), weight, bias)
