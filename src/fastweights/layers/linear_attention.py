"""The Linear Transformer's attention."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.fast_weight import FastWeight


class LinearAttention(FastWeight):
    """Linear attention layer: a kernel in place of the softmax.

        W <- W + v k^T
        z <- z + k
        y = W q / (z . q)

    Source: Katharopoulos et al. 2020 (arXiv:2006.16236); Schlag et al. 2021 (arXiv:2102.11174), Eqs. 17-19.

    Example:
        >>> import torch
        >>> layer = LinearAttention(d_model=64, num_heads=4, feature_map="elu")
        >>> y, state = layer(torch.randn(2, 10, 64))
        >>> y.shape, state.W.shape
        (torch.Size([2, 10, 64]), torch.Size([2, 4, 16, 16]))
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 8,
        feature_map: str | None = None,
        qk_norm: str | None = None,
        key_size: Size | None = None,
        value_size: Size | None = None,
        scale: float = 1.0,
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        cell = Cell.from_name("linear-attention")
        sizes = (key_size, value_size)
        super().__init__(
            d_model,
            num_heads,
            cell,
            *sizes,
            feature_map,
            qk_norm,
            scale=scale,
            backend=backend,
            initial_state=initial_state,
        )
