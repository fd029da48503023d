"""Parts of memories that are trained while they read: memory, loss, optimiser, retention and link.

`Cell.from_loss` combines one of each. Each is a plain function whose annotated parameters come from the slow network;
you can write your own. y is the value that the memory recalls for the key, and v the value that it should recall.

Source: the four choices of Behrouz et al. 2025 (MIRAS), Sec. 3; test-time training, Sun et al. 2024.
"""

from collections.abc import Callable
from typing import Annotated, Any

from torch import Tensor
from torch.nn.functional import gelu, huber_loss

from fastweights.core.arguments import Positive, Size, checked
from fastweights.core.family import family
from fastweights.signature import Decay, Key, KeyDecay, Matrix, Rate, RawKey, TensorSpec, Value

Loss = Callable[..., Tensor]


def l2(y: Value, v: Value) -> Tensor:
    """Squared error |y - v|^2 / 2, whose gradient is the error of the delta rule."""
    return (y - v).square().sum() / 2


def dot(y: Value, v: Value) -> Tensor:
    """Negative dot product -y . v, whose gradient is the Hebbian write and does not depend on the memory."""
    return -(y * v).sum()


@family
@checked
def power(p: Positive) -> Loss:
    """Returns the loss sum_i |y_i - v_i|^p."""

    def power(y: Value, v: Value) -> Tensor:
        """Power p of the p-norm, |y - v|_p^p."""
        return ((y - v).abs() ** p).sum()

    return power


@family
@checked
def huber(delta: Positive = 1.0) -> Loss:
    """Returns Huber's loss: quadratic up to errors of `delta`, linear beyond, so that outliers write little."""

    def huber(y: Value, v: Value) -> Tensor:
        """Sum of Huber's loss over the components."""
        return huber_loss(y, v, reduction="sum", delta=delta)

    return huber


def linear(W: Matrix, k: Key) -> Value:
    """Linear memory W k."""
    return W @ k


def normalised(W: Annotated[Tensor, TensorSpec("K K", "memory")], k: Key) -> RawKey:
    """Memory k + LN(W k) of TTT-Linear, with an epsilon of 1e-5."""
    read = W @ k
    centred = read - read.mean()
    return k + centred * (centred.square().mean() + 1e-5).rsqrt()


@family
@checked
def mlp(width: Size = 4) -> Callable[..., Tensor]:
    """Returns a memory of two layers with `width` K hidden units.

    It needs `learned_start=True`, since all gradients are 0 at 0.
    """

    def mlp(up: Any, down: Any, k: Key) -> Value:
        """Two-layer memory down gelu(up k)."""
        return down @ gelu(up @ k)

    slots = {"up": TensorSpec(f"{width}*K K", "memory"), "down": TensorSpec(f"V {width}*K", "memory")}
    mlp.__annotations__.update({name: Annotated[Tensor, slot] for name, slot in slots.items()})
    return mlp


def fade(W: Tensor, decay: Decay) -> Tensor:
    """Scalar decay, decay W."""
    return decay * W


def fade_features(W: Matrix, decay: KeyDecay) -> Tensor:
    """Decay per feature of the keys, W diag(decay)."""
    return W * decay


def sgd(gradient: Tensor, beta: Rate) -> Tensor:
    """Gradient descent: the change is -beta gradient."""
    return -beta * gradient


def momentum(gradient: Tensor, last: Tensor, momentum: Rate, beta: Rate) -> Tensor:
    """Momentum: the change is momentum last - beta gradient, where the parameter `last` is the previous change."""
    return momentum * last - beta * gradient


def softmax(A: Tensor) -> Tensor:
    """Rows as distributions. Descent on A is then mirror descent on W with the relative entropy."""
    return A.softmax(-1)


@family
@checked
def scaled(q: Positive) -> Callable[[Tensor], Tensor]:
    """Returns the map A / |A|_q^(q-2)."""

    def scaled(A: Tensor) -> Tensor:
        """A with the norm of MIRAS's Moneta."""
        # Without the floor a memory of zeros would have no gradient.
        return A / (A.abs() ** q).sum().clamp(min=1e-6) ** ((q - 2) / q)

    return scaled


def identity(W: Tensor) -> Tensor:
    """Identity: W unchanged."""
    return W
