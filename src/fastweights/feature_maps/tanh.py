"""The hyperbolic tangent as a feature map."""

import torch
from torch import Tensor

from fastweights.feature_maps._function import FunctionMap


class Tanh(FunctionMap):
    """phi(x) = tanh(x): keys of either sign, none longer than the root of their size.

    Source: Schlag et al. 2021 (Learning Associative Inference Using Fast Weight Memory), Eq. 5.
    """

    @staticmethod
    def function(x: Tensor) -> Tensor:
        """Returns phi(x)."""
        return torch.tanh(x)
