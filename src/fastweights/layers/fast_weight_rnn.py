"""The fast-weight RNN of Ba et al. as a layer, with its two ways to compute the same."""

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
from fastweights.core.padding import within
from fastweights.layers.base.fast_weight_network import FastWeightNetwork
from fastweights.layers.base.layer import NO_CONTROLS, Controls
from fastweights.layers.base.validation import fit_state

FORMS = ("matrix", "attention")


class FastWeightRNN(FastWeightNetwork):
    """A <- lambda A + eta h h^T, then h <- relu(LN(W h + C x + A h')) for S steps, h' starting at relu(W h + C x).

    A sequence shorter than a head's units R can be computed without A, as attention over the states stored so far,
    A h' = lambda^t A_0 h' + eta sum_j lambda^(t-j) h_j (h_j . h'), which costs T instead of R products a step. A is
    made once, at the end. The compiled matrix form is several times as fast on a CPU even so; where no kernel can be
    compiled, attention is the faster one for T < R.

    The output is h, without a map behind it.

    Source: Ba et al. 2016, Eqs. 1-5. The number S of inner steps is not in the paper: 1 in all re-implementations, as
    is the start of W at 0.05 I.

    Args:
        d_model: Number of units of all heads, and size of the output.
        heads: Number of independent networks of R = d_model / heads units.
        inner_steps: S.
        decay: lambda, from 0 to 1.
        rate: eta, at least 0.
        form: "matrix" for the cell as it is, or "attention".
        input_size: Size of the input; `d_model` if None.
        backend: The backend of `scan`, for the matrix form.
        initial: The initial state, as in `FastWeight`.
        layer_norm: Whether every inner step has layer normalisation (Eq. 5); without it the step is Eq. 2.
    """

    def __init__(
        self,
        d_model: Size,
        heads: Size = 1,
        inner_steps: Size = 1,
        decay: float = 0.95,
        rate: NotNegative = 0.5,
        form: str = "matrix",
        input_size: Size | None = None,
        backend: str = "auto",
        initial: Any = "zero",
        layer_norm: bool = True,
    ) -> None:
        require_name("form", form, FORMS)
        cell = Cell.of(make_fast_weight_rnn() if layer_norm else make_fast_weight_rnn(False, inner_steps))
        super().__init__(d_model, heads, cell, inner_steps, decay, rate, input_size, backend, initial)
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
        """What the layer does."""
        if self.form == "matrix":
            return super().run(x, state, reset, lengths, controls)
        start = self.initial_state(x.shape[0])
        state = start if state is None else fit_state(state, start, x)
        boundary = self.slow_net(x).x
        # As in a scan, no autocast region may turn the sums into half precision.
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
    """The cell over x `[B, T, H, R]` without its matrix: y, and the same state as the matrix form."""
    A, h = state
    matrices = [A] if reset is None else [A, start.A]
    # What is left of the matrix that was given, and of the one that a reset goes back to: [B, H, 1] each.
    left = [torch.ones_like(h[..., :1]), torch.zeros_like(h[..., :1])][: len(matrices)]
    inside = None if lengths is None else within(lengths, x.shape[1])
    stored: list[Tensor] = []
    weights: list[Tensor] = []
    outputs: list[Tensor] = []
    for t, x_t in enumerate(x.unbind(1)):
        if reset is not None:
            again = reset[:, t, None, None]
            h = torch.where(again, start.h, h)
            left = [torch.where(again, new, old) for new, old in zip((0.0, 1.0), left, strict=True)]
            weights = [torch.where(again, 0.0, weight) for weight in weights]
        decay, eta = params.decay[:, None], params.eta[:, None]
        if inside is not None:
            decay, eta = (
                torch.where(inside[:, t, None, None], rate, kept) for rate, kept in ((decay, 1.0), (eta, 0.0))
            )
        left = [part * decay for part in left]
        weights = [*(weight * decay for weight in weights), eta.expand_as(h[..., :1])]
        stored.append(h)
        read = _reader(matrices, left, torch.stack(stored, -2), torch.cat(weights, -1))
        after = settle(read, _apply(params.W, h) + x_t, norms)
        h = after if inside is None else torch.where(inside[:, t, None, None], after, h)
        outputs.append(h)
    keys, written = torch.stack(stored, -2), torch.cat(weights, -1).unsqueeze(-1)
    kept = [_only_where(part.unsqueeze(-1), matrix) for part, matrix in zip(left, matrices, strict=True)]
    return torch.stack(outputs, 1), FastWeightRNNState(sum(kept) + (written * keys).mT @ keys, h)


def _reader(matrices: list[Tensor], left: list[Tensor], stored: Tensor, weights: Tensor) -> Callable[[Tensor], Tensor]:
    """h -> A h, where A is what is left of matrices, plus states stored since, with their weights."""

    def apply_A(h: Tensor) -> Tensor:
        scores = weights * _apply(stored, h)
        parts = [_only_where(part, _apply(matrix, h)) for part, matrix in zip(left, matrices, strict=True)]
        return sum(parts) + (scores.unsqueeze(-2) @ stored).squeeze(-2)

    return apply_A


def _only_where(left: Tensor, x: Tensor) -> Tensor:
    """left x, but 0 where nothing is left: of a matrix that was reset, not even a NaN."""
    return torch.where(left == 0, 0.0, left * x)


def _apply(matrix: Tensor, x: Tensor) -> Tensor:
    return (matrix @ x.unsqueeze(-1)).squeeze(-1)
