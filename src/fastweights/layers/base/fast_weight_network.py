"""Base class of the two recurrent networks of Ba et al.: the output is the state, without a projection."""

from typing import Any

import torch
from torch import nn

from fastweights.cell import Cell
from fastweights.core.arguments import NotNegative, Size
from fastweights.core.errors import require
from fastweights.layers.base.cell_layer import CellLayer, require_heads
from fastweights.layers.base.initialise import assign, change_initial
from fastweights.layers.base.slow_net import Keys, SlowNet
from fastweights.layers.base.slow_weights import SlowWeights


class FastWeightNetwork(CellLayer):
    """Base class of the recurrent networks of Ba et al. 2016: the output is the hidden state.

        y = [h_1, ..., h_H]

    Every head is a recurrent network of R = d_model / num_heads units with the input C x. W starts at 0.05 I, as in
    re-implementations.

    Source: Ba et al. 2016 (arXiv:1610.06258), Sec. 4.

    Args:
        d_model: Number of units of all heads, and size D of the output.
        num_heads: Number of independent networks H. It must divide `d_model`.
        cell: Cell, or its name.
        inner_steps: Number S of inner steps, at least 1.
        decay: Decay lambda of the fast weights, from 0 to 1.
        rate: Learning rate eta of the fast weights, at least 0.
        input_size: Size of the input. None: `d_model`.
        backend: Backend of `scan`: "auto", "compiled", "chunkwise" or "reference".
        initial_state: Initial state, as in `FastWeight`.

    Raises:
        InputError: `num_heads` does not divide `d_model`, R is below 3, or `decay` is out of range.
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size,
        cell: Any,
        inner_steps: Size,
        decay: float,
        rate: NotNegative,
        input_size: Size | None,
        backend: str,
        initial_state: Any,
    ) -> None:
        _check(d_model, num_heads, decay)
        sizes, named_cell = {"S": inner_steps, "R": d_model // num_heads}, Cell.from_function(cell)
        input_width = d_model if input_size is None else input_size
        slow_net = SlowNet(input_width, num_heads, named_cell, Keys(sizes["R"], "identity", "none"), sizes)
        constants = {"decay": decay, "eta": rate}
        super().__init__(d_model, slow_net, named_cell, 1.0, backend, constants, nn.Identity(), initial_state)
        change_initial(self.slow_weights, _init_small)


def _check(d_model: int, num_heads: int, decay: float) -> None:
    """Raises unless R and lambda are such that the network works and its fast weights stay bounded."""
    require_heads(d_model, num_heads)
    units = d_model // num_heads
    require(units >= 3, "d_model / heads", "at least 3", units, "LayerNorm of 2 units leaves only their signs.")
    require(0 <= decay <= 1, "decay", "from 0 to 1", decay, "Above 1 the fast weights grow without bound.")


def _init_small(weights: SlowWeights) -> None:
    """W = 0.05 I for every W, in place."""
    for name, W in weights.named_parameters():
        if name.startswith("W"):
            assign(W, 0.05 * torch.eye(W.shape[-1], device=W.device).expand(W.shape))
