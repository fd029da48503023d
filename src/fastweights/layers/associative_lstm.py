"""The associative LSTM: a holographic memory of complex numbers."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fastweights.backends.reference import where
from fastweights.errors import require
from fastweights.layers._begin import begin
from fastweights.layers._programmed import check_layer_input
from fastweights.state import with_methods


@with_methods
class AssociativeLSTMState(NamedTuple):
    """The copies, `[B, copies, 2, D / 2]`, and the output `[B, 2, D / 2]`: real parts, then imaginary parts."""

    c: Tensor
    h: Tensor


class AssociativeLSTM(nn.Module):
    """c_s <- f c_s + (P_s r_i) (i u), y = o bound(mean_s (P_s r_o) c_s): complex, with copies against noise.

    r_i, r_o and u are linear in x and the last y, bound by dividing every complex number by max(1, modulus); the gates
    f, i and o likewise, through a sigmoid, one a complex number. P_s are permutations, drawn at random once and always
    the same; they are saved with the parameters.

    Source: Danihelka et al. 2016 (Associative Long Short-Term Memory), Sec. 5.

    Can: overwrite, fade, recur.

    Args:
        d_model: Size of the input and output; even: half as many complex numbers.
        copies: Number of redundant copies of the memory.
        input_size: Size of the input; `d_model` if None.

    Raises:
        InputError: `d_model` is odd, or `copies` is below 1.
    """

    def __init__(self, d_model: int, copies: int = 4, input_size: int | None = None) -> None:
        super().__init__()
        require(d_model % 2 == 0, "d_model", "even, since complex numbers have two parts", d_model)
        require(copies >= 1, "copies", "at least 1", copies)
        self.units = d_model // 2
        self.input = nn.Linear(d_model if input_size is None else input_size, 9 * self.units)
        self.recurrent = nn.Linear(d_model, 9 * self.units, bias=False)
        self.permutations: Tensor
        self.register_buffer("permutations", _draw_permutations(copies, self.units))

    def forward(
        self, x: Tensor, state: AssociativeLSTMState | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, AssociativeLSTMState]:
        """x `[B, T, D]`, reset bool `[B, T]` -> y `[B, T, D]` and the state after the last step."""
        check_layer_input(x, self.input.in_features)
        initial = self.initial_state(len(x))
        state = begin(x, state, initial, reset)
        outputs = []
        for t, driven in enumerate(self.input(x).unbind(1)):
            if reset is not None:
                state = where(reset[:, t], initial, state)
            state = self._step(driven, state)
            outputs.append(state.h)
        return torch.stack(outputs, dim=1).flatten(2), state

    def initial_state(self, batch_size: int) -> AssociativeLSTMState:
        """Zeros."""
        zeros = self.recurrent.weight.new_zeros
        return AssociativeLSTMState(
            zeros(batch_size, len(self.permutations), 2, self.units), zeros(batch_size, 2, self.units)
        )

    def _step(self, driven: Tensor, state: AssociativeLSTMState) -> AssociativeLSTMState:
        """`driven` `[B, 9 D / 2]` is what the input says to the three gates and the three complex vectors."""
        gates, vectors = (driven + self.recurrent(state.h.flatten(1))).split([3 * self.units, 6 * self.units], dim=-1)
        f, i, o = gates.sigmoid().unflatten(-1, (3, 1, -1)).unbind(1)
        u, r_i, r_o = _bound(vectors.unflatten(-1, (3, 2, -1))).unbind(1)
        c = f.unsqueeze(1) * state.c + _times(self._permuted(r_i), (i * u).unsqueeze(1))
        return AssociativeLSTMState(c, o * _bound(_times(self._permuted(r_o), c).mean(1)))

    def _permuted(self, r: Tensor) -> Tensor:
        """P_s r for every copy: `[B, 2, D / 2]` -> `[B, copies, 2, D / 2]`."""
        return r[..., self.permutations].transpose(1, 2)


def _bound(z: Tensor) -> Tensor:
    """z / max(1, |z|) for `[..., 2, Z]`. Clamped before the root: no gradient is infinite at 0."""
    return z * z.square().sum(-2, keepdim=True).clamp(min=1).rsqrt()


def _times(a: Tensor, b: Tensor) -> Tensor:
    """Product of complex numbers, `[..., 2, Z]`: in pairs of reals, since torch has no complex bfloat16."""
    a_real, a_imaginary = a.unbind(-2)
    b_real, b_imaginary = b.unbind(-2)
    parts = a_real * b_real - a_imaginary * b_imaginary, a_real * b_imaginary + a_imaginary * b_real
    return torch.stack(parts, dim=-2)


def _draw_permutations(copies: int, units: int) -> Tensor:
    """int `[copies, units]`, from a generator of its own, on the device where parameters are made."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randperm(units, generator=generator, device="cpu") for _ in range(copies)]
    return torch.stack(drawn).to(torch.get_default_device())
