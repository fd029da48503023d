"""A stack of blocks, which is a layer itself."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from fastweights.core.arguments import Count, Probability, Size, checked
from fastweights.core.errors import require
from fastweights.layers import LayerKinds, behind_convolution, make_layers
from fastweights.layers.base.layer import Controls, Layer, call, controls_of
from fastweights.models.block import Block
from fastweights.registry import POSITIONS
from fastweights.state import register_state


@register_state
class StackState(NamedTuple):
    """One layer state per block."""

    layers: tuple[Any, ...]


class Stack(Layer, nn.ModuleList):
    """y = block_n(... block_1(x)), each with its own state. Blocks and the stack have the interface of a layer.

    The stack is a list of its blocks: its length is their number, and their parameters are named by their indices.
    """

    @checked
    def __init__(self, blocks: Iterable[nn.Module], d_model: Size) -> None:
        blocks = [] if isinstance(blocks, Tensor) else list(blocks)
        fits = bool(blocks) and all(isinstance(block, nn.Module) for block in blocks)
        require(fits, "blocks", "modules, at least one", [type(block).__name__ for block in blocks])
        super().__init__(blocks)
        self.input_size = d_model
        self.controls = controls_of(*self)

    def run(
        self, x: Tensor, state: StackState | None, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, StackState]:
        """Applies the blocks in sequence."""
        states = (None,) * len(self) if state is None else state.layers
        after = []
        for block, before in zip(self, states, strict=True):
            x, new = call(block, x, before, reset, lengths, controls)
            after.append(new)
        return x, StackState(tuple(after))

    def take(self, state: Any, x: Tensor) -> StackState:
        """Checks that the state has one part per block. Each block checks its part."""
        fits = isinstance(state, StackState) and len(state.layers) == len(self)
        remedy = "Use the state of the last call or of initial_state."
        require(fits, "state", f"a StackState of {len(self)} blocks", type(state).__name__, remedy)
        stack_state: StackState = state
        return stack_state

    def initial_state(self, batch_size: int) -> StackState:
        """Returns the initial states of the blocks."""
        return StackState(tuple(block.initial_state(batch_size) for block in self))  # type: ignore[operator]


def make_stack(
    layer: LayerKinds,
    d_model: Size,
    depth: Size,
    heads: Size,
    d_ff: Size,
    dropout: Probability = 0.0,
    norm: str = "pre",
    convolution: Count = 0,
    options: Mapping[str, Any] | None = None,
    feed_forward_norm: str | None = None,
    positions: str | None = None,
) -> Stack:
    """Returns a stack of blocks, after positions if there are any.

    Args:
        layer: A layer, or several that alternate, as in `make_layers`, with `options`.
        d_model: D.
        depth: Number of blocks.
        heads: Number of memories per layer.
        d_ff: Width of the feed-forward networks.
        dropout: Probability of dropping a unit.
        norm: Position of LayerNorm, from `fastweights list norms`.
        convolution: Width of a causal convolution in front of every layer; 0 for none.
        feed_forward_norm: Position of LayerNorm around the feed-forward networks; `norm` if None.
        positions: Positions that are added to the input, from `fastweights list positions`; none if None.
    """

    def blocks() -> Iterator[Block]:
        for memory in make_layers(layer, depth, d_model, heads, **(options or {})):
            yield Block(
                behind_convolution(memory, d_model, convolution), d_model, d_ff, dropout, norm, feed_forward_norm
            )

    position_layers = [POSITIONS.load(positions)(d_model, dropout)] if positions else []
    return Stack([*position_layers, *blocks()], d_model)
