"""User-defined rules, cells and layers."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from fastweights import Cell, family, make_layer
from fastweights.signature import Decay, Key, Matrix, Rate, TensorSpec, Value


def fading(W: Matrix, k: Key, v: Value, decay: Decay, beta: Rate) -> Matrix:
    """W <- decay (W + beta (v - W k) k^T): the decay follows the correction."""
    return decay * (W + beta * torch.outer(v - W @ k, k))


def descent(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    """W <- W - beta grad_W |W k - v|^2 / 2, with the gradient by torch."""
    return W - beta * torch.func.grad(lambda W: (W @ k - v).square().sum() / 2)(W)


def make_leaky(retention):
    def leaky(W: Matrix, k: Key, v: Value) -> Matrix:
        return retention * W + torch.outer(v, k)

    return leaky


leaky = make_leaky(0.9)
leaky_family = family(make_leaky)
member = leaky_family(0.8)


class BoundedState(NamedTuple):
    W: Matrix


class BoundedInputs(NamedTuple):
    k: Key
    v: Value


def bounded(state: BoundedState, x: BoundedInputs) -> tuple[BoundedState, Value]:
    """W <- tanh(W + v k^T), y = W k."""
    W = torch.tanh(state.W + torch.outer(x.v, x.k))
    return BoundedState(W), W @ x.k


cell = Cell.from_function(bounded)


class SharingInputs(NamedTuple):
    """One key for all heads, like one group of Mamba-2."""

    k: Annotated[Tensor, TensorSpec("K", "shared key")]
    v: Value
    beta: Annotated[Tensor, TensorSpec("", "shared rate")]
    q: Key


def sharing(state: BoundedState, x: SharingInputs) -> tuple[BoundedState, Value]:
    """W <- W + beta (v - W k) k^T, y = W q."""
    W = state.W + x.beta * torch.outer(x.v - state.W @ x.k, x.k)
    return BoundedState(W), W @ x.q


class TurningInputs(NamedTuple):
    q: Key
    k: Annotated[Tensor, TensorSpec("3 K", "key")]
    v: Annotated[Tensor, TensorSpec("3 V", "value")]
    beta: Annotated[Tensor, TensorSpec("3", "rate")]
    decay: Decay


def turning(state: BoundedState, x: TurningInputs) -> tuple[BoundedState, Value]:
    """Three erasing writes per step, with a read before them and one after them."""
    W = x.decay * state.W
    for k, v, beta in zip(x.k, x.v, x.beta, strict=True):
        W = W + beta * torch.outer(v - W @ k, k)
    return BoundedState(W), W @ x.q + state.W @ x.k[0]


class Squashed:
    """An object as a step."""

    def __init__(self, squash) -> None:
        self.squash = squash
        self.__annotations__ = bounded.__annotations__

    def __call__(self, state: BoundedState, x: BoundedInputs) -> tuple[BoundedState, Value]:
        W = self.squash(state.W + torch.outer(x.v, x.k))
        return BoundedState(W), W @ x.k


class Wrapped(nn.Module):
    """A user-defined layer that contains a layer of the library."""

    def __init__(self, d_model: int, num_heads: int = 2, gain: float = 1.0) -> None:
        super().__init__()
        self.inner = make_layer(fading, d_model, num_heads)
        self.gain = gain

    def forward(self, x, state=None, reset=None):
        y, state = self.inner(x, state, reset)
        return self.gain * y, state

    def initial_state(self, batch_size):
        return self.inner.initial_state(batch_size)


def wrapped_twice(d_model, num_heads):
    """A function that makes a layer."""
    return Wrapped(d_model, num_heads, gain=2.0)


NUMBER = 3


class TurnedInputs(NamedTuple):
    q: Key
    k: Key
    v: Value


def flipped(state: BoundedState, x: TurnedInputs) -> tuple[BoundedState, Value]:
    """Keys in reverse order."""
    W = state.W + torch.outer(x.v, x.k.flip(0))
    return BoundedState(W), W @ x.q


def summed_so_far(state: BoundedState, x: TurnedInputs) -> tuple[BoundedState, Value]:
    """Cumulative sums, whose gradients sum in the other direction."""
    W = state.W + torch.outer(x.v.cumsum(0), x.k.cumsum(0))
    return BoundedState(W), (W @ x.q).cumsum(0)


def turned_around(state: BoundedState, x: TurnedInputs) -> tuple[BoundedState, Value]:
    """A state and an output in reverse order."""
    W = 0.5 * state.W.flip(0) + torch.outer(x.v, x.k)
    return BoundedState(W.flip(1)), (W @ x.q).flip(0)


def from_all_sides(state: BoundedState, x: TurnedInputs) -> tuple[BoundedState, Value]:
    """A transposed state, and parts of vectors in another order."""
    W = 0.5 * state.W.roll(1, 0) + torch.cat([x.v[1:], x.v[:1]])[:, None] * x.k[None]
    return BoundedState(W.flip(0, 1)), W.flip(1) @ x.q.roll(1, 0) + torch.stack([x.v, x.v.flip(0)]).sum(0)


class Holder:
    """A plain object, an attribute of a user-defined class."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def times(self, x: Tensor) -> Tensor:
        return x * self.scale


class Scaled(NamedTuple):
    """A NamedTuple with properties."""

    scale: float

    @property
    def twice(self) -> float:
        return self._half * 4

    @property
    def _half(self) -> float:
        return self.scale / 2
