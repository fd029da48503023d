"""SNAIL: temporal convolutions followed by attention."""

from typing import Annotated, NamedTuple

from torch import Tensor, nn

from fastweights.core.arguments import Size, at_least
from fastweights.layers._snail_blocks import AttentionBlock, dense_blocks
from fastweights.layers.base.layer import Controls, Layer
from fastweights.layers.base.window_cache import empty_cache
from fastweights.layers.softmax_attention import AttentionCache
from fastweights.state import register_state


@register_state
class SNAILState(NamedTuple):
    """The last inputs of every dense block, `[B, dilation, C]`, and the last keys and values of the attention, `[B,
    window_size, K]` and `[B, window_size, V]`."""

    tails: tuple[Tensor, ...]
    cache: AttentionCache


class SNAIL(Layer):
    """SNAIL layer: temporal convolutions followed by attention.

        z <- [z, tanh(A z) * sigmoid(B z)]
        y = W [z, softmax(q K^T / sqrt(d)) V]

    Dilated causal convolutions of width 2, with dilations 2, 4, 8, ..., add `filters` channels each. An attention block
    adds `value_size` channels, and a linear map follows. The convolutions are padded with zeros before the first step
    and after a reset. The attention has no positions. In the paper it covers a whole episode; here at most the last
    `window_size` steps.

    Source: Mishra et al. 2018 (arXiv:1707.03141), Fig. 2 and Sec. 3 (dense, TC and attention blocks); sizes: its
    few-shot network.

    Can: accumulate.

    Args:
        d_model: Size D of the input and the output.
        length: Number of time steps that the convolutions span, with ceil(log2 length) dense blocks. At least 2.
        filters: Number of channels that a dense block adds.
        key_size: Size of keys and queries.
        value_size: Number of channels that the attention adds.
        window_size: Number of time steps that a step attends to, including itself.

    Raises:
        InputError: `length` is below 2, or another size is below 1.

    Example:
        >>> import torch
        >>> layer = SNAIL(
        ...     d_model=16, length=8, filters=4, key_size=8, value_size=8, window_size=8
        ... )
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        d_model: Size,
        length: Annotated[int, at_least(2)] = 32,
        filters: Size = 128,
        key_size: Size = 256,
        value_size: Size = 128,
        window_size: Size = 256,
    ) -> None:
        super().__init__()
        self.input_size = d_model
        self.dense = dense_blocks(d_model, length, filters)
        channels = d_model + len(self.dense) * filters
        self.attention = AttentionBlock(channels, key_size, value_size, window_size)
        self.output = nn.Linear(channels + value_size, d_model)

    def run(
        self, x: Tensor, state: SNAILState | None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, SNAILState]:
        """Runs the layer on checked inputs."""
        before = self.initial_state(x.shape[0]) if state is None else state
        tails = []
        for block, tail in zip(self.dense, before.tails, strict=True):
            x, after = block(x, tail, reset, lengths)
            tails.append(after)
        x, cache = self.attention(x, empty_cache(before.cache) if state is None else before.cache, reset, lengths)
        return self.output(x), SNAILState(tuple(tails), cache)

    def initial_state(self, batch_size: int) -> SNAILState:
        """Returns zeros for the convolutions and an empty cache for the attention."""
        tails = tuple(block.initial_state(batch_size) for block in self.dense)  # type: ignore[operator]
        return SNAILState(tails, self.attention.initial_state(batch_size))
