"""The Performer's attention."""

from typing import Any

from fastweights.core.arguments import Size
from fastweights.layers.linear_attention import LinearAttention


class Performer(LinearAttention):
    """y = sum_j v_j phi(k_j).phi(q) / sum_j phi(k_j).phi(q), phi FAVOR+: softmax attention with random features.

    The linear attention of this library with another feature map: "scaled-favor-M" for M directions, "scaled-favor" for
    as many as a key has entries. "gaussian-favor" draws independent directions. "relu-favor" has a ReLU in place of the
    exponential.

    Source: Choromanski et al. 2021, Eqs. 4-6 and Lemma 1.
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 8,
        feature_map: str = "scaled-favor",
        qk_norm: str | None = None,
        key_size: Size | None = None,
        value_size: Size | None = None,
        scale: float = 1.0,
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        super().__init__(d_model, num_heads, feature_map, qk_norm, key_size, value_size, scale, backend, initial_state)
