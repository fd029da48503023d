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
    """Squared error, whose gradient is the error of the delta rule.

        L = |y - v|^2 / 2

    Args:
        y: Value that the memory recalls, `[V]`.
        v: Value that it should recall, `[V]`.

    Returns:
        The loss, a scalar.
    """
    return (y - v).square().sum() / 2


def dot(y: Value, v: Value) -> Tensor:
    """Negative dot product, whose gradient is the Hebbian write and does not depend on the memory.

        L = -y . v

    Args:
        y: Value that the memory recalls, `[V]`.
        v: Value that it should recall, `[V]`.

    Returns:
        The loss, a scalar.
    """
    return -(y * v).sum()


@family
@checked
def power(p: Positive) -> Loss:
    """Returns a loss that is a power of the p-norm of the error.

        L = sum_i |y_i - v_i|^p

    Args:
        p: Power, above 0.

    Returns:
        The loss, a function `(y, v) -> scalar`.
    """

    def power(y: Value, v: Value) -> Tensor:
        """Power p of the p-norm, |y - v|_p^p."""
        return ((y - v).abs() ** p).sum()

    return power


@family
@checked
def huber(delta: Positive = 1.0) -> Loss:
    """Returns Huber's loss: quadratic for small errors, linear for outliers.

    Args:
        delta: Error from which on the loss is linear, above 0.

    Returns:
        The loss, a function `(y, v) -> scalar`.
    """

    def huber(y: Value, v: Value) -> Tensor:
        """Sum of Huber's loss over the components."""
        return huber_loss(y, v, reduction="sum", delta=delta)

    return huber


def linear(W: Matrix, k: Key) -> Value:
    """Linear memory.

        y = W k

    Args:
        W: Fast weights `[V, K]`.
        k: Key `[K]`.

    Returns:
        The recalled value `[V]`.
    """
    return W @ k


def normalised(W: Annotated[Tensor, TensorSpec("K K", "memory")], k: Key) -> RawKey:
    """Linear memory with a residual connection and layer normalisation, as in TTT-Linear.

        y = k + LN(W k)

    LN has an eps of 1e-5, and no gain and bias.

    Args:
        W: Fast weights `[K, K]`.
        k: Key `[K]`.

    Returns:
        The recalled value `[K]`.
    """
    read = W @ k
    centred = read - read.mean()
    return k + centred * (centred.square().mean() + 1e-5).rsqrt()


@family
@checked
def mlp(width: Size = 4) -> Callable[..., Tensor]:
    """Returns a two-layer memory.

        y = D gelu(U k)

    It needs `learned_start=True`, since all gradients are 0 if the weights are 0.

    Args:
        width: Number of hidden units, as a multiple of K.

    Returns:
        The memory, a function `(up, down, k) -> y`.
    """

    def mlp(up: Any, down: Any, k: Key) -> Value:
        """Two-layer memory down gelu(up k)."""
        return down @ gelu(up @ k)

    slots = {"up": TensorSpec(f"{width}*K K", "memory"), "down": TensorSpec(f"V {width}*K", "memory")}
    mlp.__annotations__.update({name: Annotated[Tensor, slot] for name, slot in slots.items()})
    return mlp


def scalar_decay(W: Tensor, decay: Decay) -> Tensor:
    """Scalar decay.

        W <- decay W

    Args:
        W: Fast weights.
        decay: Decay factor from 0 to 1, a scalar.

    Returns:
        The decayed fast weights.
    """
    return decay * W


def per_feature_decay(W: Matrix, decay: KeyDecay) -> Tensor:
    """Decay per key feature.

        W <- W diag(decay)

    Args:
        W: Fast weights `[V, K]`.
        decay: Decay factors from 0 to 1, `[K]`.

    Returns:
        The decayed fast weights `[V, K]`.
    """
    return W * decay


def sgd(gradient: Tensor, beta: Rate) -> Tensor:
    """Gradient descent.

        Delta = -beta grad

    Args:
        gradient: Gradient of the loss with respect to the fast weights.
        beta: Learning rate, a scalar.

    Returns:
        The change of the fast weights.
    """
    return -beta * gradient


def momentum(gradient: Tensor, last: Tensor, momentum: Rate, beta: Rate) -> Tensor:
    """Gradient descent with momentum.

        Delta <- momentum Delta - beta grad

    Args:
        gradient: Gradient of the loss with respect to the fast weights.
        last: Previous change of the fast weights.
        momentum: Factor on the previous change, a scalar.
        beta: Learning rate, a scalar.

    Returns:
        The change of the fast weights.
    """
    return momentum * last - beta * gradient


def softmax(A: Tensor) -> Tensor:
    """Softmax of every row, for mirror descent with the relative entropy.

        W = softmax(A)

    Args:
        A: Stored matrix `[V, K]`.

    Returns:
        The weights of the memory, whose rows sum to 1.
    """
    return A.softmax(-1)


@family
@checked
def scaled(q: Positive) -> Callable[[Tensor], Tensor]:
    """Returns a normalisation by a power of the q-norm.

        W = A / |A|_q^(q-2)

    Args:
        q: Order of the norm, above 0.

    Returns:
        The normalisation, a function `A -> W`.
    """

    def scaled(A: Tensor) -> Tensor:
        """A with the norm of MIRAS's Moneta."""
        # Without the floor a memory of zeros would have no gradient.
        return A / (A.abs() ** q).sum().clamp(min=1e-6) ** ((q - 2) / q)

    return scaled


def identity(W: Tensor) -> Tensor:
    """Identity.

    Args:
        W: Fast weights.

    Returns:
        W, unchanged.
    """
    return W
