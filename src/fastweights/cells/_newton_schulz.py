"""Newton-Schulz iterations, by which the optimiser Muon orthogonalises its momentum."""

from torch import Tensor


def orthogonalised(X: Tensor, steps: int) -> Tensor:
    """X with singular values near 1, by `steps` applications of a polynomial of the fifth degree.

    Source: Jordan et al. 2024 (Muon), for the coefficients.
    """
    if steps:
        X = X * (X.square().sum() + 1e-6).rsqrt()
    for _ in range(steps):
        A = X @ X.mT
        B = -4.7750 * A + 2.0315 * A @ A
        X = 3.4445 * X + B @ X
    return X
