"""Sinusoids of the number of remaining steps of a window."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.arguments import Probability, Size
from fastweights.core.errors import require
from fastweights.layers.base.angles import positions_to_angles
from fastweights.layers.base.layer import Controls, Layer
from fastweights.models.dropout import Dropout
from fastweights.state import register_state


@register_state
class WindowStart(NamedTuple):
    """The state before a window."""


@register_state
class WindowEnd(NamedTuple):
    """The state after a window. No steps can follow, since positions count from the end."""


class Descending(Layer):
    """x[t] + [sin((T - 1 - t) / 10000^(2i/D)) for i < D / 2, then cos(...)]: the first step of a window counts most.

    It serves windows that are read whole: a state cannot be carried to the next window, nor reset inside one.

    Source: language models of Schlag et al. 2021 and Irie et al. 2021 (code), after Dai et al. 2019.
    """

    def __init__(self, d_model: Size, dropout: Probability = 0.0) -> None:
        super().__init__()
        require(d_model % 2 == 0, "d_model", "even, since positions are pairs of a sine and a cosine", d_model)
        self.input_size = d_model
        self.dropout = Dropout(dropout)

    def check_state(self, state: Any, x: Tensor) -> Any:
        """Returns the state unchanged."""
        return state

    def run(
        self,
        x: Tensor,
        state: WindowStart | WindowEnd | None,
        reset: Tensor | None,
        lengths: Tensor | None,
        controls: Controls,
    ) -> tuple[Tensor, WindowEnd]:
        """Runs the layer on one whole window."""
        remedy = "Use positions='ascending' or None to carry or reset a state."
        require(reset is None, "reset", "None, since positions count from the end of a window", "a tensor", remedy)
        require(not isinstance(state, WindowEnd), "state", "None, since a window was read to its end", state, remedy)
        time = torch.arange(x.shape[1], device=x.device)
        remaining = x.shape[1] - 1 - time if lengths is None else lengths.unsqueeze(1) - 1 - time
        angles = positions_to_angles(remaining, x.shape[-1])
        sinusoids = torch.cat([angles.sin(), angles.cos()], dim=-1)
        return self.dropout(x + sinusoids.to(x.dtype)), WindowEnd()

    def initial_state(self, batch_size: int) -> WindowStart:
        """Returns the state before a window."""
        return WindowStart()
