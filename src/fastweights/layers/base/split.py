"""The slow net of a network that programs itself: none."""

from typing import Any

from torch import Tensor, nn

from fastweights.cell import Cell
from fastweights.layers.base.layer import Controls
from fastweights.layers.base.slow_net import Keys


class Split(nn.Module):
    """Gives every head its own part of x, through a feature map: the one input of a cell that is its own slow net."""

    def __init__(self, d_model: int, heads: int, cell: Cell, features: str, value_size: int) -> None:
        super().__init__()
        self.input_size = d_model
        self.heads = heads
        self.cell = cell
        self.keys = Keys(d_model // heads, features, "none")
        self.sizes = {"K": self.keys.output_size, "V": value_size}

    def forward(self, x: Tensor, controls: Controls) -> Any:
        """x `[B, T, D]`, no controls -> `cell.Inputs` of one tensor `[B, T, H, K]`."""
        return self.cell.Inputs(self.keys(x.unflatten(-1, (self.heads, -1))))
