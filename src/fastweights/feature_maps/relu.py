"""The rectifier as a feature map."""

import torch
from torch import Tensor, nn


class ReLU(nn.Module):
    """phi(x) = max(x, 0).

    Source: Choromanski et al. 2021 (ReLU features); Schlag et al. 2021, Sec. 5.4.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)
