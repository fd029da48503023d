"""Base class of the layers over self-referential cells."""

from typing import Any

from torch import nn

from fastweights.cell import Cell
from fastweights.core.arguments import Size
from fastweights.core.errors import require
from fastweights.layers.base.cell_layer import CellLayer, require_heads
from fastweights.layers.base.split import SplitHeads


class SelfReferential(CellLayer):
    """Layer over a self-referential cell: every head modifies its own weights.

        y = W_o [y_1, ..., y_H]

    Every head reads one part of x.

    Args:
        d_model: Size D of the input, and of the output if `output_size` is None.
        num_heads: Number of heads H. It must divide `d_model`.
        cell: Name of the cell.
        feature_map: Feature map of the input, a name from `fastweights list feature-maps`. The paper uses "identity"
            for few-shot learning and "softmax" for reinforcement learning.
        backend: Backend of `scan`: "auto", "compiled", "chunkwise" or "reference".
        initial_state: Initial state, as in `FastWeight`. It is the difference from the learned initial weights of the
            heads.
        output_size: Size of y = [y_1, ..., y_H] without W_o, a multiple of `num_heads`. The layer can then replace any
            weight matrix (Irie et al. 2022, Sec. 3). None: the layer has W_o, and y has the size `d_model`.

    Raises:
        InputError: `num_heads` does not divide `d_model` or `output_size`.
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
        split = SplitHeads(d_model, num_heads, named, feature_map, values // num_heads)
        output = None if output_size is None else nn.Identity()
        super().__init__(d_model, split, named, backend=backend, output=output, initial_state=initial_state)
