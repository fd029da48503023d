"""The identity as a feature map."""

from torch import Tensor

from fastweights.feature_maps._function import FunctionMap


class Identity(FunctionMap):
    """Identity: keys without a feature map.

        phi(x) = x

    Source: Schmidhuber 1992 (doi:10.1162/neco.1992.4.1.131) uses keys without a feature map.
    """

    @staticmethod
    def function(x: Tensor) -> Tensor:
        """Applies the feature map.

        Args:
            x: Input of any shape.

        Returns:
            The features, of the same shape.
        """
        return x
