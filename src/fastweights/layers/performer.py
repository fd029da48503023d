"""The Performer's attention."""

from typing import Any

from fastweights.core.arguments import Size
from fastweights.layers.linear_attention import LinearAttention


class Performer(LinearAttention):
    """Performer layer: softmax attention with random features (FAVOR+).

        y = sum_j v_j (phi(k_j) . phi(q)) / sum_j phi(k_j) . phi(q)

    It is `LinearAttention` with another feature map. "scaled-favor-M" has M directions, "scaled-favor" as many as a key
    has components. "gaussian-favor" draws independent directions. "relu-favor" has a ReLU in place of the exponential.

    Source: Choromanski et al. 2021 (arXiv:2009.14794), Eqs. 4-6 and Lemma 1.

    Example:
        >>> import torch
        >>> layer = Performer(d_model=64, num_heads=4, feature_map="scaled-favor-32")
        >>> y, state = layer(torch.randn(2, 10, 64))
        >>> y.shape
        torch.Size([2, 10, 64])
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
