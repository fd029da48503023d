"""Random features with the rectifier in place of the exponential."""

from torch import Tensor

from fastweights.feature_maps._random_features import RandomFeatures


class ReLUFavor(RandomFeatures):
    """Random features with a ReLU in place of the exponential.

        phi(x) = max(+-w . x, 0) / sqrt(2 m)

    The expectation of phi(q) . phi(k) is |q| |k| (sin a + (pi - a) cos a) / (2 pi), where a is the angle between q and
    k. The m random directions w are orthogonal in groups of `size`, as in `favor`.

    Source: Choromanski et al. 2021 (arXiv:2009.14794), Eq. 5 with f = ReLU and h = 1 (Performer-ReLU); Schlag et al.
    2021 (arXiv:2102.11174), Sec. 5.4, which suggests a ReLU for the exp of Eq. 32. The kernel is the arc-cosine kernel
    of first order (Cho and Saul 2009).
    """

    def activate(self, w_x: Tensor, x: Tensor) -> Tensor:
        """Applies the ReLU to projections."""
        return w_x.relu()
