"""A stack of blocks with the reader and the head of a task."""

from typing import Any

from torch import Tensor, nn

from fastweights.core.arguments import Count, Probability, Size, checked
from fastweights.layers import LayerKinds
from fastweights.models._reader import make_reader
from fastweights.models.blocks import Blocks
from fastweights.models.stack import make_stack


class BlockModel(nn.Module):
    """y_t = W h_t + b, h the residual stream after `num_layers` blocks over any layer.

    Source: Irie et al. 2021, Sec. 4.2 (D = 256, 4 blocks, 16 heads, feed-forward networks of width 1024): pre-LN and no
    LayerNorm at the end. Their Transformer has post-LN, LayerNorm at the end, and ascending positions.

    Args:
        kind: "tokens", "pairs" or "features", as in `Task.input_kind`.
        input_size: Number of symbols or features.
        output_size: Number of classes.
        layer: A layer, or several that alternate, as in `make_layers`, with `options`.
        d_model: D.
        num_layers: Number of blocks.
        num_heads: Number of memories per layer.
        d_ff: Width of the feed-forward networks.
        dropout: Probability of dropping a unit.
        conv_size: Width of a causal convolution in front of every layer; 0 for none.
        norm: Position of LayerNorm, from `fastweights list norms`.
        feed_forward_norm: Position of LayerNorm around the feed-forward networks; `norm` if None.
        final_norm: Whether a LayerNorm follows the last block.
        positions: Positions that are added to the input, from `fastweights list positions`; none if None.
    """

    @checked
    def __init__(
        self,
        kind: str,
        input_size: Size,
        output_size: Size,
        layer: LayerKinds,
        d_model: Size,
        num_layers: Size,
        num_heads: Size,
        d_ff: Size,
        dropout: Probability = 0.0,
        conv_size: Count = 0,
        options: dict[str, Any] | None = None,
        norm: str = "pre",
        feed_forward_norm: str | None = None,
        final_norm: bool = False,
        positions: str | None = None,
    ) -> None:
        super().__init__()
        self.reader = make_reader(kind, input_size, d_model)
        blocks = Blocks(
            layer=layer,
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            d_ff=d_ff,
            dropout=dropout,
            norm=norm,
            feed_forward_norm=feed_forward_norm,
            conv_size=conv_size,
            positions=positions,
            options=options,
        )
        self.blocks = make_stack(blocks)
        self.norm = nn.LayerNorm(d_model) if final_norm else nn.Identity()
        self.head = nn.Linear(d_model, output_size)

    def forward(self, inputs: Tensor, answers: int) -> Tensor:
        """Maps inputs of a task, `[B, T]` or `[B, T, .]`, to outputs `[B, answers, output_size]` for the last steps."""
        h, _ = self.blocks(self.reader(inputs))
        outputs: Tensor = self.head(self.norm(h[:, -answers:]))
        return outputs

    def step(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Maps the next inputs `[B, T]` or `[B, T, .]` to outputs `[B, T, output_size]` and the state after them."""
        h, state = self.blocks(self.reader(inputs), state)
        return self.head(self.norm(h)), state

    def initial_state(self, batch_size: int) -> Any:
        """Returns the state before the first step."""
        return self.blocks.initial_state(batch_size)
