"""FAVOR+ of softmax attention, whose scores are divided by the root of the key size."""

from torch import Tensor

from fastweights.feature_maps._random_features import RandomFeatures


class ScaledFavor(RandomFeatures):
    """phi(x) = exp(+-w.x' - |x'|^2 / 2) / sqrt(2 m), x' = x / d^(1/4): on average phi(q).phi(k) = exp(q.k / sqrt(d)).

    Features of large keys do not vanish: for a key of 64 numbers of variance 1, those of `favor` are about exp(-32).

    Source: Choromanski et al. 2021, Eqs. 1-2 with Lemma 1.
    """

    def again(self, x: Tensor) -> Tensor:
        """The same with the directions that were drawn last."""
        return super().again(x * x.shape[-1] ** -0.25)
