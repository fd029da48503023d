"""SNAIL as a network for a task."""

from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

from torch import Tensor, nn

from fastweights.core.arguments import Size, at_least, checked
from fastweights.layers._snail_blocks import AttentionBlock, dense_blocks
from fastweights.layers.base.layer import Controls, Layer
from fastweights.layers.base.window_cache import empty_cache
from fastweights.models._input_embedding import make_input_embedding
from fastweights.state import register_state

ATTENTION = ((64, 32), (256, 128), (512, 256))
"""Size of the keys and number of new channels of the first, second and third attention block."""
FILTERS = 128
"""Number of channels that a dense block adds."""


@register_state
class SNAILBlocksState(NamedTuple):
    """The state of every block."""

    blocks: tuple[Any, ...]


class SNAILBlocks(Layer, nn.ModuleList):
    """All blocks of the network in sequence, as a layer: each appends channels to its input.

    Args:
        channels: Number of channels of the input; the output has `width`.
        length: Number of steps that attention and convolutions cover.
    """

    @checked
    def __init__(self, channels: Size, length: Size) -> None:
        blocks: list[nn.Module] = []
        input_size = channels
        for index, (keys, values) in enumerate(ATTENTION):
            if index:
                blocks += list(dense_blocks(channels, length, FILTERS))
                channels += FILTERS * (length - 1).bit_length()
            blocks.append(AttentionBlock(channels, keys, values, length))
            channels += values
        super().__init__(blocks)
        self.input_size, self.width = input_size, channels

    def run(
        self,
        x: Tensor,
        state: SNAILBlocksState | None,
        reset: Tensor | None,
        lengths: Tensor | None,
        controls: Controls,
    ) -> tuple[Tensor, SNAILBlocksState]:
        """Applies the blocks in sequence."""
        before: Iterable[Any] = self._empty_states(x.shape[0]) if state is None else state.blocks
        after = []
        for block, past in zip(self, before, strict=True):
            x, cache = block(x, past, reset, lengths)
            after.append(cache)
        return x, SNAILBlocksState(tuple(after))

    def initial_state(self, batch_size: int) -> SNAILBlocksState:
        """Returns the initial states of the blocks."""
        return SNAILBlocksState(tuple(block.initial_state(batch_size) for block in self))  # type: ignore[operator]

    def _empty_states(self, batch_size: int) -> list[Any]:
        """The initial states of the blocks, with attention caches of size 0."""
        starts = self.initial_state(batch_size).blocks
        return [empty_cache(s) if isinstance(b, AttentionBlock) else s for b, s in zip(self, starts, strict=True)]


class SNAILNetwork(nn.Module):
    """SNAIL for a task: attention and temporal convolutions in turn, each adding channels.

        y_t = W z_t + b

    z passes an attention block (64, 32), temporal convolutions (T, 128), an attention block (256, 128), temporal
    convolutions (T, 128) and an attention block (512, 256). Features are not embedded: in the paper they are those of
    an image and its label.

    Source: Mishra et al. 2018 (arXiv:1707.03141), Sec. 5.1 and appendix (few-shot learning); rows of Table 1 of Irie et
    al. 2022 (arXiv:2202.05780).

    Args:
        kind: Kind of inputs: "tokens", "pairs" or "features", as in `Task.input_kind`.
        input_size: Number of symbols or features.
        output_size: Number of classes.
        length: Number of time steps T of a sequence, which attention and convolutions cover. At least 2.
        embedding: Size of the embedding of a symbol. Features have none.

    Example:
        >>> import torch
        >>> model = SNAILNetwork("features", 16, 3, length=8)
        >>> model(torch.randn(2, 8, 16), answers=1).shape
        torch.Size([2, 1, 3])
    """

    @checked
    def __init__(
        self, kind: str, input_size: Size, output_size: Size, length: Annotated[int, at_least(2)], embedding: Size = 64
    ) -> None:
        super().__init__()
        features = kind == "features"
        self.input_embedding = nn.Identity() if features else make_input_embedding(kind, input_size, embedding)
        self.blocks = SNAILBlocks(input_size if features else embedding, length)
        self.head = nn.Linear(self.blocks.width, output_size)

    def forward(self, inputs: Tensor, answers: int) -> Tensor:
        """Computes the outputs for the last time steps.

        Args:
            inputs: Inputs of a task: int `[B, T]` for tokens, int `[B, T, 2]` for pairs, `[B, T, input_size]` for
                features.
            answers: Number P of time steps at the end that have outputs.

        Returns:
            The logits `[B, P, output_size]`.
        """
        z, _ = self.blocks(self.input_embedding(inputs))
        outputs: Tensor = self.head(z[:, -answers:])
        return outputs
