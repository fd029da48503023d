"""The softmax as a feature map."""

from torch import Tensor, nn


class Softmax(nn.Module):
    """phi(x) = exp(x) / sum exp(x): positive, with sum 1.

    Source: Irie et al. 2021, Eq. 12 (keys and queries of the recurrent fast net).
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(dim=-1)
