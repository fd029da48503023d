"""Log-linear attention: one memory for every scale of time."""

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require
from fastweights.core.family import family
from fastweights.signature import Decay, Key, TensorSpec, Value, key_features


@family
@checked
def make_log_linear_attention(levels: Size = 8) -> Any:
    """The step with `levels` memories per head.

    Raises:
        InputError: there are fewer than 2 levels.
    """
    require(levels >= 2, "levels", "at least 2", levels)
    State: Any = _state(levels)
    Inputs: Any = _inputs(levels)

    @key_features("identity", "l2")
    def log_linear_attention(state: Any, x: Any) -> tuple[Any, Value]:
        """Log-linear attention: a hierarchy of memories of growing span.

            W_0 <- v k^T
            W_l <- decay (W_0 + ... + W_(l-1))
            y = sum_l g_l W_l q

        A level takes over all levels below when these are full. Level 0 holds the last token, and level l holds 2^(l -
        1) tokens before those of the levels below, or nothing, as the binary digits of the number of tokens say. Recent
        tokens have weights of their own, and older ones share them. The paper adds a level when the sequence doubles.
        Here the last of 8 levels holds everything older.

        Source: Guo et al. 2025 (Log-Linear Attention, arXiv:2506.04761), for Mamba-2; levels in the form of
        flash-linear-attention, `ops/log_linear_attn/naive.py`.

        Can: fade.
        """
        number = state.count.floor()
        W = torch.stack([torch.outer(x.v, x.k), *_merged(x.decay * state.W, number)])
        count = (number + 1) % float(2 ** (levels - 2))
        return State(W, count), x.weight @ (W @ x.q)

    log_linear_attention.__annotations__ |= {"state": State, "x": Inputs, "return": tuple[State, Value]}
    return log_linear_attention


def _state(levels: int) -> Any:
    """The type of the state: a memory per level, and the number of tokens up to the period of the last level."""
    memory = Annotated[Tensor, TensorSpec(f"{levels} V K", "memory")]
    count = Annotated[Tensor, TensorSpec("", "count")]
    return NamedTuple("LogLinearAttentionState", [("W", memory), ("count", count)])


def _inputs(levels: int) -> Any:
    """The type of the inputs, with a weight per level."""
    weight = Annotated[Tensor, TensorSpec(f"{levels}", "rate")]
    fields = [("q", Key), ("k", Key), ("v", Value), ("decay", Decay), ("weight", weight)]
    return NamedTuple("LogLinearAttentionInputs", fields)


def _merged(W: Tensor, number: Tensor) -> list[Tensor]:
    """The levels from 1 on, when the token with this number arrives."""
    levels, below, merged = len(W), W[0], []
    for level in range(1, levels):
        period = float(2 ** (level - 1))
        is_last = level == levels - 1
        moves = number % period == 0
        takes = moves if is_last else number % (2 * period) == period
        left = W[level] if is_last else torch.where(moves, 0.0, W[level])
        merged.append(left + torch.where(takes, below, 0.0))
        below = below + W[level]
    return merged


log_linear_attention = make_log_linear_attention()
