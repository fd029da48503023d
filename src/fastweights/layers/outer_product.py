"""The fast weight programmer of 1991."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.fast_weight import FastWeight
from fastweights.rules.outer_product import make_outer_product


class OuterProduct(FastWeight):
    """W <- sigma(W + v k^T), y = W q: the fast weight programmer of 1991, over any number of heads.

    Source: Schmidhuber 1991; Schlag et al. 2021, Eqs. 1-3, where q is the input x: `query="input"`.

    Args:
        d_model: Size of the input and output.
        num_heads: Number of memories; it divides `d_model`.
        activation: sigma: "identity", "relu", "sigmoid", "softmax" (over the row of a value) or "tanh".
        query: "projection" for a linear map of x, or "input" for x itself, of which every head gets its own part.

    The other options are those of `FastWeight`.
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
