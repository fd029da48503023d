"""The softmax as a feature map."""

from torch import Tensor

from fastweights.feature_maps._function import FunctionMap


class Softmax(FunctionMap):
    """phi(x) = exp(x) / sum exp(x): positive, with sum 1.

    Source: Irie et al. 2021, Eq. 12 (keys and queries of the recurrent fast net).
    """

    @staticmethod
    def function(x: Tensor) -> Tensor:
        """Returns phi(x)."""
        return x.softmax(dim=-1)
