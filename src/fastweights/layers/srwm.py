"""The layer over srwm."""

from typing import Any

from fastweights.core.arguments import Size
from fastweights.layers.base.self_referential import SelfReferential


class SRWM(SelfReferential):
    """A <- A + beta_A (A q - A k) k^T for all A in W = [W_y, W_q, W_k, W_beta], [y, q, k, beta] = W x: programs itself.

    Source: Irie et al. 2022, Eqs. 5-8, with four rates (appendix); feature maps of the input as in the authors' code.
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
