"""The positive feature map of linear attention."""

from torch import Tensor

from fastweights.feature_maps._function import FunctionMap


def positive(x: Tensor) -> Tensor:
    """elu(x) + 1, but not as that sum, which rounds small values to 0 in half precision."""
    return x.clamp(max=0).exp() + x.relu()


class ELU(FunctionMap):
    """phi(x) = elu(x) + 1: exp(x) below 0, x + 1 above.

    Source: Katharopoulos et al. 2020, Eq. 7; Schlag et al. 2021, Eq. 30.
    """

    function = staticmethod(positive)
