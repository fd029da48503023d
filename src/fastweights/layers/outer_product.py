"""The fast weight programmer of 1991."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.fast_weight import FastWeight
from fastweights.rules.outer_product import make_outer_product


class OuterProduct(FastWeight):
    """Layer of the fast weight programmer of 1991.

        W <- sigma(W + v k^T)
        y = W q

    Source: Schmidhuber 1992 (doi:10.1162/neco.1992.4.1.131); Schlag et al. 2021 (arXiv:2102.11174), Eqs. 1-3, where q
    is the input x: `query="input"`.

    Args:
        activation: Activation sigma: "identity", "relu", "sigmoid", "softmax" (over the row of a value) or "tanh".

    Example:
        >>> import torch
        >>> layer = OuterProduct(d_model=16, num_heads=2, activation="tanh")
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 8,
        activation: str = "tanh",
        query: str = "projection",
        feature_map: str | None = None,
        qk_norm: str | None = None,
        key_size: Size | None = None,
        value_size: Size | None = None,
        scale: float = 1.0,
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        cell, keys = Cell.from_function(make_outer_product(activation)), (key_size, value_size, feature_map, qk_norm)
        super().__init__(
            d_model, num_heads, cell, *keys, scale=scale, backend=backend, initial_state=initial_state, query=query
        )
