"""The layer over one-rate-srwm."""

from typing import Any

from fastweights.core.arguments import Size
from fastweights.layers.base.self_referential import SelfReferential


class OneRateSRWM(SelfReferential):
    """A <- A + beta (A q - A k) k^T for all A in W = [W_y, W_q, W_k, w_beta], [y, q, k, beta] = W x: with one rate.

    Source: Irie et al. 2022, Eqs. 5-8.
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
