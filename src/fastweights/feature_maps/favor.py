"""FAVOR+: random features of the softmax kernel."""

from fastweights.feature_maps._random_features import RandomFeatures


class Favor(RandomFeatures):
    """FAVOR+: random features of the softmax kernel.

        phi(x) = exp(+-w . x - |x|^2 / 2) / sqrt(2 m)

    The expectation of phi(q) . phi(k) is exp(q . k). The m random directions w are orthogonal in groups of `size`, each
    as long as a Gaussian vector.

    Source: Choromanski et al. 2021 (arXiv:2009.14794), Lemma 1 (hyperbolic features) and Sec. 3.3; Schlag et al. 2021
    (arXiv:2102.11174), Eqs. 31-32, as in the code of their retrieval tasks, which also redraws in evaluation.
    """
