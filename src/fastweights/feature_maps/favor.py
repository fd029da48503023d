"""FAVOR+: random features of the softmax kernel."""

from fastweights.feature_maps._random_features import RandomFeatures


class Favor(RandomFeatures):
    """phi(x) = exp(+-w.x - |x|^2 / 2) / sqrt(2 m) for m random directions w: on average phi(q).phi(k) = exp(q.k).

    The directions are orthogonal in groups of `size`, each as long as a Gaussian vector.

    Source: Choromanski et al. 2021, Lemma 1 (hyperbolic features) and Sec. 3.3; Schlag et al. 2021, Eqs. 31-32, as in
    the code of their retrieval tasks (which also redraws in evaluation).
    """
