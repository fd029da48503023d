"""The rectifier as a feature map."""

import torch
from torch import Tensor

from fastweights.feature_maps._function import FunctionMap


class ReLU(FunctionMap):
    """ReLU as a feature map.

        phi(x) = max(x, 0)

    It has no random directions; `relu-favor` has them.

    Source: Kasai et al. 2021 (Finetuning Pretrained Transformers into RNNs, arXiv:2103.13076), without the learned map.
    """

    @staticmethod
    def function(x: Tensor) -> Tensor:
        """Applies the feature map.

        Args:
            x: Input of any shape.

        Returns:
            The features, of the same shape.
        """
        return torch.relu(x)
