"""Attention to a whole sequence: cross-attention to another one, or bidirectional self-attention."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from fastweights.cells.linear_attention import EPS
from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require
from fastweights.core.padding import mask_steps, valid_steps
from fastweights.layers.base.attention import attention
from fastweights.layers.base.cell_layer import require_heads
from fastweights.layers.base.layer import Controls, Layer
from fastweights.layers.base.slow_net import Keys
from fastweights.state import register_state


@register_state
class KeysAndValues(NamedTuple):
    """Keys and values `[B, H, S, D / H]` of a sequence, and which of them are no padding, bool `[B, S]`."""

    k: Tensor
    v: Tensor
    valid: Tensor


@register_state
class KeyValueSums(NamedTuple):
    """W = sum_s v_s phi(k_s)^T `[B, H, V, K]`, z = sum_s phi(k_s) `[B, H, K]`: of a size independent of the length."""

    W: Tensor
    z: Tensor


class CrossAttention(nn.Module):
    """Cross-attention to a whole sequence, which is encoded once.

        y_t = W_o "attention"(W_q x_t, K, V)

    Use `make_cross_attention` for softmax attention or linear attention. `encode` computes the memory of a source
    sequence; a call reads it.

    Args:
        d_model: Size D of both sequences.
        num_heads: Number of heads H. It must divide `d_model`.

    Example:
        >>> import torch
        >>> from fastweights.models.cross_attention import make_cross_attention
        >>> attention = make_cross_attention(d_model=16, num_heads=2, feature_map="elu")
        >>> memory = attention.encode(torch.randn(2, 7, 16))
        >>> attention(torch.randn(2, 5, 16), memory).shape
        torch.Size([2, 5, 16])
    """

    @checked
    def __init__(self, d_model: Size, num_heads: Size) -> None:
        super().__init__()
        require_heads(d_model, num_heads)
        self.num_heads = num_heads
        self.query = nn.Linear(d_model, d_model)
        self.key_and_value = nn.Linear(d_model, 2 * d_model)
        self.output = nn.Linear(d_model, d_model)

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> Any:
        """Computes the memory of a source sequence.

        Args:
            source: Source sequences `[B, S, D]`.
            lengths: Number of time steps of each sequence, int `[B]`, at least 1. None: S.

        Returns:
            The memory, for `forward`.
        """
        k, v = self.key_and_value(source).unflatten(-1, (2, self.num_heads, -1)).unbind(2)
        valid = valid_steps(
            source.new_full((len(source),), source.shape[1]) if lengths is None else lengths, source.shape[1]
        )
        return self.store(k.transpose(1, 2), v.transpose(1, 2), valid)

    def forward(self, x: Tensor, memory: Any) -> Tensor:
        """Reads a memory at every time step.

        Args:
            x: Input `[B, T, D]`.
            memory: Memory that `encode` returned.

        Returns:
            The output y `[B, T, D]`.
        """
        q = self.query(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        y: Tensor = self.output(self.read(q, memory).transpose(1, 2).flatten(2))
        return y

    def store(self, k: Tensor, v: Tensor, valid: Tensor) -> Any:
        """Stores keys and values. A subclass defines it; `encode` calls it.

        Args:
            k: Keys `[B, H, S, D / H]`.
            v: Values `[B, H, S, D / H]`.
            valid: Whether a time step is no padding, bool `[B, S]`.

        Returns:
            The memory.
        """
        raise NotImplementedError

    def read(self, q: Tensor, memory: Any) -> Tensor:
        """Reads the memory. A subclass defines it; `forward` calls it.

        Args:
            q: Queries `[B, H, T, D / H]`.
            memory: Memory that `store` returned.

        Returns:
            The outputs `[B, H, T, D / H]`.
        """
        raise NotImplementedError


class SoftmaxCrossAttention(CrossAttention):
    """a(q, K, V) = softmax(q K^T / sqrt(d)) V

    Source: Vaswani et al. 2017, Eq. 1.
    """

    def store(self, k: Tensor, v: Tensor, valid: Tensor) -> KeysAndValues:
        """Returns all keys and values."""
        return KeysAndValues(k, v, valid)

    def read(self, q: Tensor, memory: KeysAndValues) -> Tensor:
        """Returns the attention over all steps but padding."""
        mask = memory.valid[:, None, None]
        return attention(q, memory.k, memory.v, mask=mask)


class LinearCrossAttention(CrossAttention):
    """a(q, W, z) = W phi(q) / (z . phi(q))

    Source: Katharopoulos et al. 2020; Schlag et al. 2021, Eqs. 14-16, without the order of steps.

    Args:
        feature_map: phi, a name from `fastweights list feature-maps`.
    """

    def __init__(self, d_model: Size, num_heads: Size, feature_map: str) -> None:
        super().__init__(d_model, num_heads)
        self.keys = Keys(d_model // num_heads, feature_map, "none")

    def store(self, k: Tensor, v: Tensor, valid: Tensor) -> KeyValueSums:
        """Returns two sums over the sequence."""
        phi = mask_steps(valid, self.keys(k).transpose(1, 2)).transpose(1, 2)
        return KeyValueSums(v.mT @ phi, phi.sum(2))

    def read(self, q: Tensor, memory: KeyValueSums) -> Tensor:
        """Reads the memory, normalised by the sum of all keys."""
        phi = self.keys.map_queries(q)
        return phi @ memory.W.mT / (phi @ memory.z.unsqueeze(-1) + EPS)


def make_cross_attention(d_model: int, num_heads: int, feature_map: str | None) -> CrossAttention:
    """Returns linear attention with a feature map, or softmax attention if it is None."""
    return (
        LinearCrossAttention(d_model, num_heads, feature_map)
        if feature_map
        else SoftmaxCrossAttention(d_model, num_heads)
    )


@register_state
class NoCarry(NamedTuple):
    """The empty state of a layer that reads whole sequences."""


class BidirectionalAttention(Layer):
    """Bidirectional self-attention, for encoders: every step attends to all steps of its sequence.

    Args:
        d_model: D.
        num_heads: H, which divides D.
        feature_map: Feature map of linear attention; softmax attention if None.
    """

    def __init__(self, d_model: Size, num_heads: Size, feature_map: str | None = None) -> None:
        super().__init__()
        self.input_size = d_model
        self.attention = make_cross_attention(d_model, num_heads, feature_map)

    def run(
        self, x: Tensor, state: Any, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, NoCarry]:
        """Runs the layer on checked inputs."""
        require(reset is None, "reset", "None, since the layer reads whole sequences", "a tensor")
        return self.attention(x, self.attention.encode(x, lengths)), NoCarry()

    def initial_state(self, batch_size: int) -> NoCarry:
        """Returns the empty state."""
        return NoCarry()
