"""Base class of the layers over self-referential cells."""

from typing import Any

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.layers.base.cell_layer import Programmed, require_heads
from fastweights.layers.base.split import Split


class SelfReferential(Programmed):
    """y = W_o [y_1, ..., y_H], where every head is a network that programs itself and reads one part of x.

    Args:
        d_model: Size of the input and output.
        heads: Number of heads; divides `d_model`.
        cell: Name of the cell.
        feature_map: Feature map of the input: in the paper "identity" (few-shot learning) or "softmax" (reinforcement
            learning).
        backend: The backend of `scan`.
        initial: The initial state, as in `FastWeight`: the shift from the learned weights that the heads start with.
    """

    def __init__(self, d_model: Size, heads: Size, cell: str, feature_map: str, backend: str, initial: Any) -> None:
        require_heads(d_model, heads)
        named = Cell.from_name(cell)
        super().__init__(d_model, Split(d_model, heads, named, feature_map), named, backend=backend, initial=initial)
