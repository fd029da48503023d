"""The Delta RNN whose output is squashed, as a layer."""

from typing import Any

from fastweights.cell import Cell
from fastweights.cells.delta_rnn_v1 import make_delta_rnn_v1
from fastweights.core.arguments import Probability, Size
from fastweights.layers.base.fast_weight import FastWeight


class DeltaRNNV1(FastWeight):
    """y <- sigma(W softmax(q) + R y): an RNN layer with fast weights W and R; its output is the recurrent query.

    Source: Irie et al. 2021, Eq. 11 with fast weights; appendix A.2 (ablation), with a softmax.

    Args:
        d_model: Size of the input and output.
        num_heads: Number of memories; it divides `d_model`.
        activation: sigma: "identity", "relu", "sigmoid", "softmax" or "tanh".

    The other options are those of `FastWeight`.
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 8,
        activation: str = "softmax",
        key_size: Size | None = None,
        value_size: Size | None = None,
        rate_activation: str = "sigmoid",
        scale: float = 1.0,
        backend: str = "auto",
        initial_state: Any = "zero",
        read_dropout: Probability = 0.0,
    ) -> None:
        cell, sizes = Cell.from_function(make_delta_rnn_v1(activation)), (key_size, value_size)
        options: dict[str, Any] = {
            "rate_activation": rate_activation,
            "scale": scale,
            "backend": backend,
            "initial_state": initial_state,
        }
        super().__init__(d_model, num_heads, cell, *sizes, read_dropout=read_dropout, **options)
