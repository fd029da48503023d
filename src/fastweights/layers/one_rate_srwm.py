"""The layer over one-rate-srwm."""

from typing import Any

from fastweights.core.arguments import Size
from fastweights.layers.base.self_referential import SelfReferential


class OneRateSRWM(SelfReferential):
    """Self-referential weight matrix (SRWM) layer with one rate.

        [y, q, k, beta] = W x
        W <- W + beta (W q - W k) k^T

    Source: Irie et al. 2022 (arXiv:2202.05780), Eqs. 5-8.

    Example:
        >>> import torch
        >>> layer = OneRateSRWM(d_model=16, num_heads=2)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 8,
        feature_map: str = "identity",
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        super().__init__(d_model, num_heads, "one-rate-srwm", feature_map, backend, initial_state)
