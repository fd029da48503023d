"""The positive feature map of linear attention."""

from torch import Tensor

from fastweights.feature_maps._function import FunctionMap


def positive(x: Tensor) -> Tensor:
    """Computes elu(x) + 1 without rounding small values to 0 in half precision.

    Args:
        x: Input of any shape.

    Returns:
        The features, of the same shape.
    """
    return x.clamp(max=0).exp() + x.relu()


class ELU(FunctionMap):
    """ELU + 1: the positive feature map of linear attention.

        phi(x) = elu(x) + 1

    It is exp(x) below 0 and x + 1 above.

    Source: Katharopoulos et al. 2020 (arXiv:2006.16236), Eq. 7; Schlag et al. 2021 (arXiv:2102.11174), Eq. 30.
    """

    function = staticmethod(positive)
