"""Base class of the layers over self-referential cells."""

from typing import Any

from torch import nn

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.core.errors import require
from fastweights.layers.base.cell_layer import Programmed, require_heads
from fastweights.layers.base.split import Split


class SelfReferential(Programmed):
    """y = W_o [y_1, ..., y_H], where every head is a network that programs itself and reads one part of x.

    Args:
        d_model: Size of the input, and of the output where `output_size` is None.
        num_heads: Number of heads; divides `d_model`.
        cell: Name of the cell.
        feature_map: Feature map of the input: in the paper "identity" (few-shot learning) or "softmax" (reinforcement
            learning).
        backend: The backend of `scan`.
        initial_state: The initial state, as in `FastWeight`: the shift from the learned weights that the heads start
            with.
        output_size: Size of y = [y_1, ..., y_H] without a map W_o behind it, a multiple of `num_heads`: so the layer
            can stand for any weight matrix (Irie et al. 2022, Sec. 3). None: y = W_o [y_1, ..., y_H], of size
            `d_model`.
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size,
        cell: str,
        feature_map: str,
        backend: str,
        initial_state: Any,
        output_size: Size | None = None,
    ) -> None:
        require_heads(d_model, num_heads)
        values = d_model if output_size is None else output_size
        require(values % num_heads == 0, "output_size", f"a multiple of the {num_heads} heads", values)
        named = Cell.from_name(cell)
        split = Split(d_model, num_heads, named, feature_map, values // num_heads)
        output = None if output_size is None else nn.Identity()
        super().__init__(d_model, split, named, backend=backend, output=output, initial_state=initial_state)
