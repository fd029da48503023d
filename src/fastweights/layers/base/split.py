"""The input of a network that programs itself, in place of a slow network."""

from typing import Any

from torch import Tensor, nn

from fastweights.cell import Cell
from fastweights.layers.base.layer import Controls
from fastweights.layers.base.slow_net import Keys


class SplitHeads(nn.Module):
    """Splits x into one part per head, through a feature map, for cells that act as their own slow network."""

    def __init__(self, d_model: int, num_heads: int, cell: Cell, features: str, value_size: int) -> None:
        super().__init__()
        self.input_size = d_model
        self.num_heads = num_heads
        self.cell = cell
        self.keys = Keys(d_model // num_heads, features, "none")
        self.sizes = {"K": self.keys.output_size, "V": value_size}

    def forward(self, x: Tensor, controls: Controls) -> Any:
        """x `[B, T, D]`, no controls -> `cell.Inputs` of one tensor `[B, T, H, K]`."""
        return self.cell.Inputs(self.keys(x.unflatten(-1, (self.num_heads, -1))))
