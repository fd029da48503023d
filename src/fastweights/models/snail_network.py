"""SNAIL as a whole network over a task."""

from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

from torch import Tensor, nn

from fastweights.core.arguments import Size, at_least, checked
from fastweights.layers._snail_blocks import AttentionBlock, dense_blocks
from fastweights.layers.base.layer import Controls, Layer
from fastweights.layers.base.window_cache import nothing
from fastweights.models._reader import make_reader
from fastweights.state import with_methods

ATTENTION = ((64, 32), (256, 128), (512, 256))
"""Size of the keys, and channels that are added, of the first, second and third attention block."""
FILTERS = 128
"""Channels that a dense block adds."""


@with_methods
class SNAILBlocksState(NamedTuple):
    """What every block keeps of the past."""

    blocks: tuple[Any, ...]


class SNAILBlocks(Layer, nn.ModuleList):
    """All blocks of the network, one after the other: each keeps its channels and adds some; a layer itself.

    Args:
        channels: Of the input; the output has `width`.
        length: So far back attention and convolutions see.
    """

    @checked
    def __init__(self, channels: Size, length: Size) -> None:
        blocks: list[nn.Module] = []
        given = channels
        for place, (keys, values) in enumerate(ATTENTION):
            if place:
                blocks += list(dense_blocks(channels, length, FILTERS))
                channels += FILTERS * (length - 1).bit_length()
            blocks.append(AttentionBlock(channels, keys, values, length))
            channels += values
        super().__init__(blocks)
        self.input_size, self.width = given, channels

    def run(
        self,
        x: Tensor,
        state: SNAILBlocksState | None,
        reset: Tensor | None,
        lengths: Tensor | None,
        controls: Controls,
    ) -> tuple[Tensor, SNAILBlocksState]:
        """Every block on what the one before it said."""
        before: Iterable[Any] = self._nothing(x.shape[0]) if state is None else state.blocks
        after = []
        for block, past in zip(self, before, strict=True):
            x, kept = block(x, past, reset, lengths)
            after.append(kept)
        return x, SNAILBlocksState(tuple(after))

    def initial_state(self, batch_size: int) -> SNAILBlocksState:
        """The blocks'."""
        return SNAILBlocksState(tuple(block.initial_state(batch_size) for block in self))  # type: ignore[operator]

    def _nothing(self, batch_size: int) -> list[Any]:
        """The same, where attention need not see that it is empty."""
        starts = self.initial_state(batch_size).blocks
        return [nothing(s) if isinstance(b, AttentionBlock) else s for b, s in zip(self, starts, strict=True)]


class SNAILNetwork(nn.Module):
    """y_t = W z_t + b, where z passes attention, convolutions, attention, convolutions, attention: each adds channels.

    Attention block (64, 32), temporal convolutions (T, 128), attention block (256, 128), temporal convolutions
    (T, 128), attention block (512, 256), and a linear map of every step. Features enter as they are: the paper's
    are those of an image beside its label.

    Source: Mishra et al. 2018, Sec. 5.1 and appendix (few-shot learning); rows of Table 1 of Irie et al. 2022.

    Args:
        kind: "tokens", "pairs" or "features", as in `Task.input_kind`.
        input_size: Number of symbols or features.
        output_size: Number of classes.
        length: T, the number of steps of a sequence: so far back attention and convolutions see.
        embedding: Size of the vector of a symbol; features have none.
    """

    @checked
    def __init__(
        self, kind: str, input_size: Size, output_size: Size, length: Annotated[int, at_least(2)], embedding: Size = 64
    ) -> None:
        super().__init__()
        features = kind == "features"
        self.reader = nn.Identity() if features else make_reader(kind, input_size, embedding)
        self.blocks = SNAILBlocks(input_size if features else embedding, length)
        self.head = nn.Linear(self.blocks.width, output_size)

    def forward(self, inputs: Tensor, answers: int) -> Tensor:
        """A task's inputs `[B, T]` or `[B, T, .]` -> outputs `[B, answers, output_size]` for the last steps."""
        z, _ = self.blocks(self.reader(inputs))
        outputs: Tensor = self.head(z[:, -answers:])
        return outputs
