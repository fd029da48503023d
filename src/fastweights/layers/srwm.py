"""The layer over srwm."""

from typing import Any

from fastweights.core.arguments import Size
from fastweights.layers.base.self_referential import SelfReferential


class SRWM(SelfReferential):
    """Self-referential weight matrix (SRWM): modifies all of its weights.

        [y, q, k, beta] = W x
        A <- A + beta_A (A q - A k) k^T, A "in" [W_y, W_q, W_k, W_beta]

    Source: Irie et al. 2022 (arXiv:2202.05780), Eqs. 5-8, with four rates (appendix). The feature maps of the input are
    those of the authors' code.

    Example:
        >>> import torch
        >>> layer = SRWM(d_model=16, num_heads=2)
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
        output_size: Size | None = None,
    ) -> None:
        super().__init__(d_model, num_heads, "srwm", feature_map, backend, initial_state, output_size)
