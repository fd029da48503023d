"""A layer with fixed control signals."""

from typing import Any

import torch
from torch import Tensor, nn

from fastweights.core.errors import require
from fastweights.layers.base.initialise import assign


class WithControls(nn.Module):
    """layer(x, controls=signals), where a signal marks the same steps of every sequence, bool `[T]` by name."""

    def __init__(self, layer: nn.Module, signals: dict[str, list[bool]]) -> None:
        super().__init__()
        self.layer = layer
        self.signals = signals
        self.names = sorted(signals)
        for name in self.names:
            self.register_buffer(name, torch.empty(len(signals[name]), dtype=torch.bool), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the signals. The layer initialises itself."""
        for name in self.names:
            assign(self.get_buffer(name), torch.tensor(self.signals[name], device="cpu"))

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Returns y for whole sequences of T steps, and the state after them."""
        steps = len(self.get_buffer(self.names[0]))
        require(x.shape[1] == steps, "x", f"[B, {steps}, D] like the signals", list(x.shape))
        signals = {name: self.get_buffer(name).expand(x.shape[:2]) for name in self.names}
        y, state = self.layer(x, controls=signals)
        return y, state
