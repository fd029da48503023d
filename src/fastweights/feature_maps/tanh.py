"""The hyperbolic tangent as a feature map."""

import torch
from torch import Tensor, nn


class Tanh(nn.Module):
    """phi(x) = tanh(x): keys of either sign, none longer than the root of their size.

    Source: Schlag et al. 2021 (Learning Associative Inference Using Fast Weight Memory), Eq. 5.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x)
