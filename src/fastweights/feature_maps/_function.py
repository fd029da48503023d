"""What the feature maps without numbers of their own share."""

from typing import Any

from torch import Tensor, nn


class Function(nn.Module):
    """A feature map that is a function of the last axis and nothing more: it can be a part of a kernel.

    It defines `function`, and `output_size` where that is not the size of its input.
    """

    function: Any

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, x: Tensor) -> Tensor:
        """`[..., size]` -> `[..., output_size]`."""
        return self.function(x)
