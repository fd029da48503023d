"""The identity as a feature map."""

from torch import Tensor

from fastweights.feature_maps._function import FunctionMap


class Identity(FunctionMap):
    """phi(x) = x.

    Source: Schmidhuber 1991 uses keys as they are.
    """

    @staticmethod
    def function(x: Tensor) -> Tensor:
        """Returns phi(x)."""
        return x
