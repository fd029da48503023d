"""The hyperbolic tangent as a feature map."""

import torch
from torch import Tensor

from fastweights.feature_maps._function import FunctionMap


class Tanh(FunctionMap):
    """Hyperbolic tangent: bounded keys of either sign.

        phi(x) = tanh(x)

    No key is longer than the square root of its size.

    Source: Schlag et al. 2021 (Learning Associative Inference Using Fast Weight Memory, arXiv:2011.07831), Eq. 5.
    """

    @staticmethod
    def function(x: Tensor) -> Tensor:
        """Applies the feature map.

        Args:
            x: Input of any shape.

        Returns:
            The features, of the same shape.
        """
        return torch.tanh(x)
