"""The fast-weight RNN of Ba et al. as a layer, in two equivalent forms."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastweights.cell import Cell
from fastweights.cells.fast_weight_rnn import (
    FastWeightRNNState,
    Norm,
    layer_norms,
    make_fast_weight_rnn,
    no_norms,
    settle,
)
from fastweights.core.arguments import NotNegative, Size
from fastweights.core.autocast import full_precision
from fastweights.core.errors import require_name
from fastweights.core.padding import valid_steps
from fastweights.layers.base.fast_weight_network import FastWeightNetwork
from fastweights.layers.base.layer import NO_CONTROLS, Controls
from fastweights.layers.base.validation import fit_state

FORMS = ("matrix", "attention")


class FastWeightRNN(FastWeightNetwork):
    """Fast-weight RNN layer: an RNN that attends to its recent states.

        A <- lambda A + eta h h^T
        z = W h + C x
        h_0 = relu(z)
        h_s = relu(LN(z + A h_(s-1))), s = 1, ..., S
        y = h <- h_S

    The output is the hidden state h, without a projection. For a sequence shorter than R = d_model / num_heads, the
    form "attention" computes A h_s from the stored states instead of A: T instead of R products per step. It computes A
    once, at the end. On a CPU the compiled matrix form is several times as fast. Without a compiler, attention is
    faster for T < R.

    Source: Ba et al. 2016 (arXiv:1610.06258), Eqs. 1-5. The paper does not give the number S of inner steps and the
    initial W; all re-implementations use 1 and 0.05 I.

    Args:
        form: "matrix": the cell itself. "attention": attention to the stored states.
        backend: Backend of `scan` for the matrix form.
        layer_norm: Whether every inner step has layer normalisation (Eq. 5). Otherwise the step is Eq. 2.

    Example:
        >>> layer = FastWeightRNN(d_model=16, inner_steps=2)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape, state.A.shape
        (torch.Size([2, 10, 16]), torch.Size([2, 1, 16, 16]))
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 1,
        inner_steps: Size = 1,
        decay: float = 0.95,
        rate: NotNegative = 0.5,
        form: str = "matrix",
        input_size: Size | None = None,
        backend: str = "auto",
        initial_state: Any = "zero",
        layer_norm: bool = True,
    ) -> None:
        require_name("form", form, FORMS)
        cell = Cell.from_function(make_fast_weight_rnn() if layer_norm else make_fast_weight_rnn(False, inner_steps))
        super().__init__(d_model, num_heads, cell, inner_steps, decay, rate, input_size, backend, initial_state)
        self.form = form
        self.inner_steps, self.layer_norm = inner_steps, layer_norm

    def run(
        self,
        x: Tensor,
        state: Any,
        reset: Tensor | None,
        lengths: Tensor | None,
        controls: Controls = NO_CONTROLS,
    ) -> tuple[Tensor, Any]:
        """Runs the layer on checked inputs."""
        if self.form == "matrix":
            return super().run(x, state, reset, lengths, controls)
        start = self.initial_state(x.shape[0])
        state = start if state is None else fit_state(state, start, x)
        boundary = self.slow_net(x).x
        # As in a scan, autocast must not compute the sums in half precision.
        with full_precision(x.device):
            params = self.slow_weights()
            params = type(params)(*(p.to(state.A.dtype) for p in params))
            y, state = attend(boundary.to(state.A.dtype), state, params, self._norms(params), reset, lengths, start)
        return y.to(x.dtype).flatten(2), state

    def _norms(self, params: Any) -> list[Norm]:
        if not self.layer_norm:
            return no_norms(self.inner_steps)
        return layer_norms(params.gain.transpose(0, 1), params.bias.transpose(0, 1))


def attend(
    x: Tensor,
    state: FastWeightRNNState,
    params: Any,
    norms: list[Norm],
    reset: Tensor | None,
    lengths: Tensor | None,
    start: Any,
) -> tuple[Tensor, Any]:
    """Runs the cell over x `[B, T, H, R]` without its matrix: y, and the same state as the matrix form."""
    A, h = state
    matrices = [A] if reset is None else [A, start.A]
    # The remaining weights of the given matrix, and of the initial one after a reset: [B, H, 1] each.
    remaining = [torch.ones_like(h[..., :1]), torch.zeros_like(h[..., :1])][: len(matrices)]
    valid = None if lengths is None else valid_steps(lengths, x.shape[1])
    stored: list[Tensor] = []
    weights: list[Tensor] = []
    outputs: list[Tensor] = []
    for t, x_t in enumerate(x.unbind(1)):
        if reset is not None:
            is_reset = reset[:, t, None, None]
            h = torch.where(is_reset, start.h, h)
            remaining = [torch.where(is_reset, new, old) for new, old in zip((0.0, 1.0), remaining, strict=True)]
            weights = [torch.where(is_reset, 0.0, weight) for weight in weights]
        decay, eta = params.decay[:, None], params.eta[:, None]
        if valid is not None:
            decay, eta = (
                torch.where(valid[:, t, None, None], rate, initial_parts)
                for rate, initial_parts in ((decay, 1.0), (eta, 0.0))
            )
        remaining = [part * decay for part in remaining]
        weights = [*(weight * decay for weight in weights), eta.expand_as(h[..., :1])]
        stored.append(h)
        read = _reader(matrices, remaining, torch.stack(stored, -2), torch.cat(weights, -1))
        after = settle(read, _apply(params.W, h) + x_t, norms)
        h = after if valid is None else torch.where(valid[:, t, None, None], after, h)
        outputs.append(h)
    keys, scores = torch.stack(stored, -2), torch.cat(weights, -1).unsqueeze(-1)
    initial_parts = [
        _scaled_or_zero(part.unsqueeze(-1), matrix) for part, matrix in zip(remaining, matrices, strict=True)
    ]
    return torch.stack(outputs, 1), FastWeightRNNState(sum(initial_parts) + (scores * keys).mT @ keys, h)


def _reader(
    matrices: list[Tensor], remaining: list[Tensor], stored: Tensor, weights: Tensor
) -> Callable[[Tensor], Tensor]:
    """The map h -> A h, where A is the weighted sum of the matrices and of the states stored since."""

    def apply_A(h: Tensor) -> Tensor:
        scores = weights * _apply(stored, h)
        parts = [_scaled_or_zero(part, _apply(matrix, h)) for part, matrix in zip(remaining, matrices, strict=True)]
        return sum(parts) + (scores.unsqueeze(-2) @ stored).squeeze(-2)

    return apply_A


def _scaled_or_zero(remaining: Tensor, x: Tensor) -> Tensor:
    """remaining x, but 0 where nothing remains, so that a NaN in a matrix does not survive a reset."""
    return torch.where(remaining == 0, 0.0, remaining * x)


def _apply(matrix: Tensor, x: Tensor) -> Tensor:
    return (matrix @ x.unsqueeze(-1)).squeeze(-1)
