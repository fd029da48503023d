"""What the layers over self-referential cells share."""

from typing import Any

from torch import nn

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.core.errors import require
from fastweights.layers.base.cell_layer import Programmed, require_heads
from fastweights.layers.base.split import Split


class SelfReferential(Programmed):
    """y = W_o [y_1, ..., y_H], where every head is a network that programs itself, given its own part of x.

    Args:
        d_model: Size of the input, and of the output where `output_size` is None.
        heads: Number of heads; divides `d_model`.
        cell: Name of the cell.
        feature_map: Of the input: "identity" (few-shot learning) or "softmax" (reinforcement learning) in the paper.
        backend: The backend of `scan`.
        initial: The initial state, as in `FastWeight`: the shift from the learned weights that the heads start with.
        output_size: Size of y = [y_1, ..., y_H] without a map W_o behind it, a multiple of `heads`: so the layer can
            stand for any weight matrix (Irie et al. 2022, Sec. 3). None: y = W_o [y_1, ..., y_H], of size `d_model`.
    """

    def __init__(
        self,
        d_model: Size,
        heads: Size,
        cell: str,
        feature_map: str,
        backend: str,
        initial: Any,
        output_size: Size | None = None,
    ) -> None:
        require_heads(d_model, heads)
        values = d_model if output_size is None else output_size
        require(values % heads == 0, "output_size", f"a multiple of the {heads} heads", values)
        named = Cell.named(cell)
        split = Split(d_model, heads, named, feature_map, values // heads)
        output = None if output_size is None else nn.Identity()
        super().__init__(d_model, split, named, backend=backend, output=output, initial=initial)
