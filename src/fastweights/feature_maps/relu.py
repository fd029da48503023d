"""The rectifier as a feature map."""

import torch
from torch import Tensor

from fastweights.feature_maps._function import FunctionMap


class ReLU(FunctionMap):
    """phi(x) = max(x, 0).

    Source: Choromanski et al. 2021 (ReLU features); Schlag et al. 2021, Sec. 5.4.
    """

    @staticmethod
    def function(x: Tensor) -> Tensor:
        """Returns phi(x)."""
        return torch.relu(x)
