"""The layer over sr-delta-net."""

from typing import Any

from fastweights.core.arguments import Size
from fastweights.layers.base.self_referential import SelfReferential


class SRDeltaNet(SelfReferential):
    """SR-DeltaNet layer: a DeltaNet whose slow network modifies itself.

        [q, k, v, b] = P x
        W <- W + b (v - W k) k^T
        y = W q

    P is a self-referential weight matrix.

    Source: Irie et al. 2022 (arXiv:2202.05780), Sec. 3 and appendix (SR-DeltaNet).

    Example:
        >>> import torch
        >>> layer = SRDeltaNet(d_model=16, num_heads=2)
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
        super().__init__(d_model, num_heads, "sr-delta-net", feature_map, backend, initial_state)
