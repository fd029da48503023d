"""Sinusoids of the index of a step."""

from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.core.arguments import Probability, Size
from fastweights.core.errors import require
from fastweights.layers.base.angles import positions_to_angles
from fastweights.layers.base.layer import Controls, Layer
from fastweights.layers.base.like import zeros
from fastweights.layers.wrappers.periodic_reset import ages
from fastweights.models.dropout import Dropout
from fastweights.state import register_state


@register_state
class AscendingState(NamedTuple):
    """Number of steps so far, int `[B]`."""

    age: Tensor


class Ascending(Layer):
    """x[t] + [sin(t / 10000^(2i/D)), cos(t / 10000^(2i/D))] for i < D / 2, sines and cosines interleaved.

    Steps count from 0, and from 0 again after a reset.

    Source: Vaswani et al. 2017, Sec. 3.5; algorithmic tasks of Irie et al. 2021.
    """

    def __init__(self, d_model: Size, dropout: Probability = 0.0) -> None:
        super().__init__()
        require(d_model % 2 == 0, "d_model", "even, since positions are pairs of a sine and a cosine", d_model)
        self.input_size = d_model
        self.dropout = Dropout(dropout)
        self.register_buffer(
            "like_x", torch.empty(0), persistent=False
        )  # holds the dtype and the device, since there is no parameter

    def run(
        self, x: Tensor, state: AscendingState | None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, AscendingState]:
        """Runs the layer on checked inputs."""
        (age,) = self.initial_state(x.shape[0]) if state is None else state
        before, age = ages(age, reset, lengths, x.shape[1])
        angles = positions_to_angles(before, x.shape[-1])
        sinusoids = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return self.dropout(x + sinusoids.to(x.dtype)), AscendingState(age)

    def initial_state(self, batch_size: int) -> AscendingState:
        """Returns the state of age 0."""
        return AscendingState(zeros(self, batch_size, dtype=torch.long))
