"""Base class of the two recurrent networks of Ba et al.: the output is the state, without a projection."""

from typing import Any

import torch
from torch import nn

from fastweights.cell import Cell
from fastweights.core.arguments import NotNegative, Size
from fastweights.core.errors import require
from fastweights.layers.base.cell_layer import Programmed, require_heads
from fastweights.layers.base.initialise import assign, change_initial
from fastweights.layers.base.slow_net import Keys, SlowNet
from fastweights.layers.base.slow_weights import SlowWeights


class FastWeightNetwork(Programmed):
    """y = [h_1, ..., h_H], where every head is a recurrent network of R = d_model / heads units with input C x.

    Source: Ba et al. 2016, Sec. 4. W starts at 0.05 I, as in re-implementations.

    Args:
        d_model: Number of units of all heads, and size of the output.
        num_heads: Number of independent networks; divides `d_model`.
        cell: The cell, or its name.
        inner_steps: S, at least 1.
        decay: lambda, from 0 to 1.
        rate: eta, at least 0.
        input_size: Size of the input; `d_model` if None.
        backend: The backend of `scan`.
        initial_state: The initial state, as in `FastWeight`.
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
        change_initial(self.slow_weights, _start_small)


def _check(d_model: int, num_heads: int, decay: float) -> None:
    """Raises unless R and lambda are such that the network works and its fast weights stay bounded."""
    require_heads(d_model, num_heads)
    units = d_model // num_heads
    require(units >= 3, "d_model / heads", "at least 3", units, "LayerNorm of 2 units leaves only their signs.")
    require(0 <= decay <= 1, "decay", "from 0 to 1", decay, "Above 1 the fast weights grow without bound.")


def _start_small(weights: SlowWeights) -> None:
    """W = 0.05 I for every W, in place."""
    for name, W in weights.named_parameters():
        if name.startswith("W"):
            assign(W, 0.05 * torch.eye(W.shape[-1], device=W.device).expand(W.shape))
