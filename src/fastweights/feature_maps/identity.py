"""The identity as a feature map."""

from torch import Tensor, nn


class Identity(nn.Module):
    """phi(x) = x.

    Source: Schmidhuber 1991 uses keys as they are.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, x: Tensor) -> Tensor:
        return x
