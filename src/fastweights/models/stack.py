"""A stack of blocks, which is a layer itself."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor, nn

from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require
from fastweights.layers import with_short_convolution
from fastweights.layers.base.layer import Controls, Layer, call_layer, controls_of
from fastweights.models.block import Block
from fastweights.models.blocks import Blocks
from fastweights.registry import POSITIONS
from fastweights.state import register_state


@register_state
class StackState(NamedTuple):
    """One layer state per block."""

    layers: tuple[Any, ...]


class Stack(Layer, nn.ModuleList):
    """Stack of layers or blocks, each with its own state. It is a layer itself.

        y = "block"_n(... "block"_1(x))

    The stack is a list of its blocks: its length is their number, and their parameters are named by their indices.

    Args:
        blocks: Layers or blocks, at least one.
        d_model: Size D of the input and the output.

    Raises:
        InputError: there is no block.

    Example:
        >>> import torch
        >>> from fastweights.layers import DeltaNet
        >>> stack = Stack(
        ...     [Block(DeltaNet(16, num_heads=2), d_model=16, d_ff=32) for _ in range(2)],
        ...     d_model=16,
        ... )
        >>> y, state = stack(torch.randn(2, 10, 16))
        >>> y.shape, len(state.layers)
        (torch.Size([2, 10, 16]), 2)
    """

    @checked
    def __init__(self, blocks: Iterable[nn.Module], d_model: Size) -> None:
        blocks = [] if isinstance(blocks, Tensor) else list(blocks)
        fits = bool(blocks) and all(isinstance(block, nn.Module) for block in blocks)
        require(fits, "blocks", "at least one module", [type(block).__name__ for block in blocks])
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
            x, new = call_layer(block, x, before, reset, lengths, controls)
            after.append(new)
        return x, StackState(tuple(after))

    def check_state(self, state: Any, x: Tensor) -> StackState:
        """Checks that the state has one part per block. Each block checks its part."""
        fits = isinstance(state, StackState) and len(state.layers) == len(self)
        remedy = "Use the state of the last call or of initial_state."
        require(fits, "state", f"a StackState of {len(self)} blocks", type(state).__name__, remedy)
        stack_state: StackState = state
        return stack_state

    def initial_state(self, batch_size: int) -> StackState:
        """Returns the initial states of the blocks."""
        return StackState(tuple(block.initial_state(batch_size) for block in self))  # type: ignore[operator]


def make_stack(blocks: Blocks) -> Stack:
    """The stack of a configuration: the positional encoding, if there is one, then the blocks."""
    positions = [POSITIONS.load(blocks.positions)(blocks.d_model, blocks.dropout)] if blocks.positions else []
    return Stack([*positions, *(make_block(layer, blocks) for layer in blocks.layers())], blocks.d_model)


def make_block(layer: nn.Module, blocks: Blocks) -> Block:
    """The block around a layer of a stack."""
    return Block(
        with_short_convolution(layer, blocks.d_model, blocks.conv_size),
        d_model=blocks.d_model,
        d_ff=blocks.width,
        dropout=blocks.dropout,
        norm=blocks.norm,
        feed_forward_norm=blocks.feed_forward_norm,
    )
