"""The rectifier as a feature map."""

import torch
from torch import Tensor

from fastweights.feature_maps._function import Function


class ReLU(Function):
    """phi(x) = max(x, 0), without random directions; `relu-favor` has them.

    Source: Kasai et al. 2021 (Finetuning Pretrained Transformers into RNNs), without the learned map.
    """

    @staticmethod
    def function(x: Tensor) -> Tensor:
        """phi."""
        return torch.relu(x)
