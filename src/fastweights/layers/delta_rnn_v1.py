"""The Delta RNN whose output is squashed, as a layer."""

from typing import Any

from fastweights.cell import Cell
from fastweights.cells.delta_rnn_v1 import make_delta_rnn_v1
from fastweights.core.arguments import Probability, Size
from fastweights.layers.base.fast_weight import FastWeight


class DeltaRNNV1(FastWeight):
    """Delta RNN layer, version 1: the output goes through an activation.

        y <- sigma(W softmax(q) + R y)

    The delta rule writes W and R. The last output is the recurrent query.

    Source: Irie et al. 2021 (arXiv:2106.06295), Eq. 11 with fast weights; appendix A.2 (ablation), with a softmax.

    Args:
        activation: Activation sigma: "identity", "relu", "sigmoid", "softmax" or "tanh".

    Example:
        >>> import torch
        >>> layer = DeltaRNNV1(d_model=16, num_heads=2, activation="tanh")
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
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
