"""The fast-weight RNN of Ba et al. as a layer, with its two ways to compute the same."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastweights.cells.fast_weight_rnn import FastWeightRNNState, settle
from fastweights.errors import require_name
from fastweights.layers._begin import begin
from fastweights.layers._fast_weight_network import FastWeightNetwork
from fastweights.layers._programmed import check_layer_input

FORMS = ("auto", "matrix", "attention")


class FastWeightRNN(FastWeightNetwork):
    """A <- lambda A + eta h h^T, then h <- relu(LN(W h + C x + A h')) for S steps, h' starting at relu(W h + C x).

    A sequence shorter than a head's units R can be computed without A, as attention over the states stored so far,
    A h' = lambda^t A_0 h' + eta sum_j lambda^(t-j) h_j (h_j . h'), which costs T instead of R products a step. A is
    made once, at the end. On a CPU the compiled matrix form is several times as fast even so.

    The output is h, without a map behind it.

    Source: Ba et al. 2016, Eqs. 1-6. The number S of inner steps is not in the paper: 1 in all re-implementations, as
    is the start of W at 0.05 I.

    Args:
        d_model: Number of units of all heads, and size of the output.
        heads: Number of independent networks of R = d_model / heads units.
        inner_steps: S.
        decay: lambda, from 0 to 1.
        rate: eta, at least 0.
        form: "matrix", "attention", or "auto": attention where T < R, but on a CPU always the matrix.
        input_size: Size of the input; `d_model` if None.
        backend: The backend of `scan`, for the matrix form.
    """

    def __init__(
        self,
        d_model: int,
        heads: int = 1,
        inner_steps: int = 1,
        decay: float = 0.95,
        rate: float = 0.5,
        form: str = "auto",
        input_size: int | None = None,
        backend: str = "auto",
    ) -> None:
        require_name("form", form, FORMS)
        super().__init__(d_model, heads, "fast-weight-rnn", inner_steps, decay, rate, input_size, backend)
        self.form = form

    def forward(self, x: Tensor, state: Any = None, reset: Tensor | None = None) -> tuple[Tensor, Any]:
        """x `[B, T, D]`, reset bool `[B, T]` -> y `[B, T, D]` and the state after the last step."""
        check_layer_input(x, self.slow_net.input_size)
        if not self._attends(x):
            return super().forward(x, state, reset)
        boundary = self.slow_net(x).x
        compute = torch.promote_types(boundary.dtype, torch.float32)
        params = self.slow_weights()
        params = type(params)(*(p.to(compute) for p in params))
        state = begin(x, state, self.initial_state(len(x)), reset)
        y, state = attend(boundary.to(compute), state, params, reset)
        return y.to(x.dtype).flatten(2), state

    def _attends(self, x: Tensor) -> bool:
        if self.form != "auto":
            return self.form == "attention"
        return x.device.type != "cpu" and x.shape[1] < self.slow_net.sizes["R"]


def attend(x: Tensor, state: FastWeightRNNState, params: Any, reset: Tensor | None) -> tuple[Tensor, Any]:
    """The cell over x `[B, T, H, R]` without its matrix: y, and the same state as the matrix form."""
    A, h = state
    age = torch.ones_like(h[..., :1])  # what is left of A: [B, H, 1]
    stored: list[Tensor] = []
    weights: list[Tensor] = []
    outputs: list[Tensor] = []
    for t, x_t in enumerate(x.unbind(1)):
        if reset is not None:
            keep = ~reset[:, t, None, None]
            h = torch.where(keep, h, 0.0)
            age = torch.where(keep, age, 0.0)
            weights = [torch.where(keep, weight, 0.0) for weight in weights]
        decay = params.decay[:, None]
        age, weights = age * decay, [*(weight * decay for weight in weights), params.eta[:, None].expand_as(age)]
        stored.append(h)
        read = _reader(A, age, torch.stack(stored, -2), torch.cat(weights, -1))
        h = settle(read, _apply(params.W, h) + x_t, params.gain.transpose(0, 1), params.bias.transpose(0, 1))
        outputs.append(h)
    keys, written = torch.stack(stored, -2), torch.cat(weights, -1).unsqueeze(-1)
    left = _only_where(age.unsqueeze(-1), A)
    return torch.stack(outputs, 1), FastWeightRNNState(left + (written * keys).mT @ keys, h)


def _reader(A: Tensor, age: Tensor, stored: Tensor, weights: Tensor) -> Callable[[Tensor], Tensor]:
    """h -> A h, where A is what is left of a matrix, plus states stored since, with their weights."""

    def apply_A(h: Tensor) -> Tensor:
        scores = weights * _apply(stored, h)
        return _only_where(age, _apply(A, h)) + (scores.unsqueeze(-2) @ stored).squeeze(-2)

    return apply_A


def _only_where(age: Tensor, x: Tensor) -> Tensor:
    """age x, but 0 where the age is: nothing is left of a matrix that was reset, not even a NaN."""
    return torch.where(age == 0, 0.0, age * x)


def _apply(matrix: Tensor, x: Tensor) -> Tensor:
    return (matrix @ x.unsqueeze(-1)).squeeze(-1)
