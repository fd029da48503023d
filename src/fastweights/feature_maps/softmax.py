"""The softmax as a feature map."""

from torch import Tensor

from fastweights.feature_maps._function import FunctionMap


class Softmax(FunctionMap):
    """Softmax as a feature map: positive, with sum 1.

        phi(x) = exp(x) / sum_i exp(x_i)

    Source: Irie et al. 2021 (arXiv:2106.06295), Eq. 12 (keys and queries of the recurrent fast network).
    """

    @staticmethod
    def function(x: Tensor) -> Tensor:
        """Applies the feature map.

        Args:
            x: Input `[..., size]`.

        Returns:
            The features, of the same shape.
        """
        return x.softmax(dim=-1)
