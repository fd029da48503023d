"""The layer over sr-delta-net."""

from typing import Any

from fastweights.core.arguments import Size
from fastweights.layers.base.self_referential import SelfReferential


class SRDeltaNet(SelfReferential):
    """W <- W + b (v - W k) k^T, y = W q, where (q, k, v, b) = P x and P modifies itself like an SRWM.

    Source: Irie et al. 2022, Sec. 3 and appendix (SR-DeltaNet).
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
