"""Base class of feature maps without parameters."""

from typing import Any

from torch import Tensor, nn

from fastweights.core.docstrings import inherit


class FunctionMap(nn.Module):
    """Base class of feature maps without parameters, so that they can be part of a kernel.

    A subclass defines `function`, and `output_size` if it differs from the size of the input.

    Args:
        size: Size of the input.
    """

    function: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Completes the docstrings of every feature map."""
        super().__init_subclass__(**kwargs)
        inherit(cls)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, x: Tensor) -> Tensor:
        """Applies the feature map to the last axis.

        Args:
            x: Input `[..., size]`.

        Returns:
            The features `[..., output_size]`.
        """
        return self.function(x)
