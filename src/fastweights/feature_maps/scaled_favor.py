"""FAVOR+ of softmax attention, whose scores are divided by the root of the key size."""

from torch import Tensor

from fastweights.feature_maps._random_features import RandomFeatures


class ScaledFavor(RandomFeatures):
    """FAVOR+ of softmax attention with scaled scores.

        x' = x / d^(1/4)
        phi(x) = exp(+-w . x' - |x'|^2 / 2) / sqrt(2 m)

    The expectation of phi(q) . phi(k) is exp(q . k / sqrt(d)). The scaling keeps the features of large keys from
    vanishing: for a key of 64 components of variance 1, those of `favor` are about exp(-32).

    Source: Choromanski et al. 2021 (arXiv:2009.14794), Eqs. 1-2 with Lemma 1.
    """

    def map_queries(self, x: Tensor) -> Tensor:
        """Computes features with the last directions, as for queries that follow their keys."""
        return super().map_queries(x * x.shape[-1] ** -0.25)
