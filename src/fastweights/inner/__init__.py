"""What a memory that is learned while it reads is made of: what it is, what it minimises, how, and what it keeps.

`Cell.from_loss` puts one of each together. Each is a plain function, annotated with what it takes from the slow net;
write your own beside these. y is what the memory recalls for the key, v what it should recall.

Source: the four choices of Behrouz et al. 2025 (MIRAS), Sec. 3; test-time training, Sun et al. 2024.
"""

from collections.abc import Callable
from typing import Annotated, Any

from torch import Tensor
from torch.nn.functional import gelu, huber_loss

from fastweights.core.arguments import Positive, Size, checked
from fastweights.core.family import family
from fastweights.signature import Decay, Key, KeyDecay, Matrix, Rate, RawKey, Slot, Value

Loss = Callable[..., Tensor]


def l2(y: Value, v: Value) -> Tensor:
    """|y - v|^2 / 2: its gradient is the delta rule's error."""
    return (y - v).square().sum() / 2


def dot(y: Value, v: Value) -> Tensor:
    """-y . v: its gradient is Hebb's, and asks nothing of what is there already."""
    return -(y * v).sum()


@family
@checked
def power(p: Positive) -> Loss:
    """sum_i |y_i - v_i|^p."""

    def power(y: Value, v: Value) -> Tensor:
        """|y - v|_p^p."""
        return ((y - v).abs() ** p).sum()

    return power


@family
@checked
def huber(delta: Positive = 1.0) -> Loss:
    """l2 up to errors of `delta`, |.| beyond: one wild value does not overwrite the memory."""

    def huber(y: Value, v: Value) -> Tensor:
        """Huber's loss, summed."""
        return huber_loss(y, v, reduction="sum", delta=delta)

    return huber


def linear(W: Matrix, k: Key) -> Value:
    """W k."""
    return W @ k


def normalised(W: Annotated[Tensor, Slot("K K", "memory")], k: Key) -> RawKey:
    """k + LN(W k), as in TTT-Linear, with an epsilon of 1e-5."""
    read = W @ k
    centred = read - read.mean()
    return k + centred * (centred.square().mean() + 1e-5).rsqrt()


@family
@checked
def mlp(width: Size = 4) -> Callable[..., Tensor]:
    """Two layers, with `width` K units between them. It needs `learned_start=True`: at zeros every gradient is 0."""

    def mlp(up: Any, down: Any, k: Key) -> Value:
        """down gelu(up k)."""
        return down @ gelu(up @ k)

    slots = {"up": Slot(f"{width}*K K", "memory"), "down": Slot(f"V {width}*K", "memory")}
    mlp.__annotations__.update({name: Annotated[Tensor, slot] for name, slot in slots.items()})
    return mlp


def fade(W: Tensor, decay: Decay) -> Tensor:
    """decay W."""
    return decay * W


def fade_features(W: Matrix, decay: KeyDecay) -> Tensor:
    """W diag(decay)."""
    return W * decay


def descent(gradient: Tensor, beta: Rate) -> Tensor:
    """-beta gradient."""
    return -beta * gradient


def momentum(gradient: Tensor, last: Tensor, momentum: Rate, beta: Rate) -> Tensor:
    """momentum last - beta gradient, where `last` is the change before: what is called so is kept in the state."""
    return momentum * last - beta * gradient


def softmax(A: Tensor) -> Tensor:
    """Rows that are distributions: descent on A then is mirror descent on W with the relative entropy."""
    return A.softmax(-1)


@family
@checked
def scaled(q: Positive) -> Callable[[Tensor], Tensor]:
    """A / |A|_q^(q-2)."""

    def scaled(A: Tensor) -> Tensor:
        """A, by the norm that MIRAS's Moneta keeps it in."""
        # Without the floor a memory of zeros would have no gradient.
        return A / (A.abs() ** q).sum().clamp(min=1e-6) ** ((q - 2) / q)

    return scaled


def as_it_is(W: Tensor) -> Tensor:
    """W."""
    return W
