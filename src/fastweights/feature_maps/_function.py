"""Base class of feature maps without parameters."""

from typing import Any

from torch import Tensor, nn


class FunctionMap(nn.Module):
    """A feature map that is a function of the last axis, so that it can be part of a kernel.

    A subclass defines `function`, and `output_size` if it differs from the size of the input.
    """

    function: Any

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, x: Tensor) -> Tensor:
        """`[..., size]` -> `[..., output_size]`."""
        return self.function(x)
