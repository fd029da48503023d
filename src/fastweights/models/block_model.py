"""A stack of blocks with the input embedding and the head of a task."""

from typing import Any

from torch import Tensor, nn

from fastweights.core.arguments import Count, Probability, Size, checked
from fastweights.layers import LayerKinds
from fastweights.models._input_embedding import make_input_embedding
from fastweights.models.blocks import Blocks
from fastweights.models.stack import make_stack


class BlockModel(nn.Module):
    """Stack of blocks for a task: input embedding, blocks, linear output.

        y_t = W h_t + b

    h is the residual stream after `num_layers` blocks over any layer.

    Source: Irie et al. 2021 (arXiv:2106.06295), Sec. 4.2 (D = 256, 4 blocks, 16 heads, feed-forward networks of width
    1024): pre-LN and no LayerNorm at the end. Their Transformer has post-LN, LayerNorm at the end, and ascending
    positions.

    Args:
        kind: Kind of inputs: "tokens", "pairs" or "features", as in `Task.input_kind`.
        input_size: Number of symbols or features.
        output_size: Number of classes.
        layer: Layer, or several that alternate, as in `make_layers`.
        d_model: Size D of the residual stream.
        num_layers: Number of blocks.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks.
        dropout: Dropout probability.
        conv_size: Width of a causal convolution in front of every layer; 0 for none.
        options: Options of the layers, by name.
        norm: Position of LayerNorm, from `fastweights list norms`.
        feed_forward_norm: Position of LayerNorm around the feed-forward networks. None: `norm`.
        final_norm: Whether a LayerNorm follows the last block.
        positions: Positional encoding that is added to the input, from `fastweights list positions`. None: no encoding.

    Example:
        >>> import torch
        >>> model = BlockModel(
        ...     "tokens",
        ...     10,
        ...     3,
        ...     layer="delta-net",
        ...     d_model=16,
        ...     num_layers=1,
        ...     num_heads=2,
        ...     d_ff=32,
        ... )
        >>> model(torch.randint(10, (2, 8)), answers=1).shape
        torch.Size([2, 1, 3])
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
        self.input_embedding = make_input_embedding(kind, input_size, d_model)
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
        """Computes the outputs for the last time steps.

        Args:
            inputs: Inputs of a task: int `[B, T]` for tokens, int `[B, T, 2]` for pairs, `[B, T, input_size]` for
                features.
            answers: Number P of time steps at the end that have outputs.

        Returns:
            The logits `[B, P, output_size]`.
        """
        h, _ = self.blocks(self.input_embedding(inputs))
        outputs: Tensor = self.head(self.norm(h[:, -answers:]))
        return outputs

    def step(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Computes the outputs for the next time steps, with a carried state.

        Args:
            inputs: Inputs of a task: int `[B, T]` for tokens, int `[B, T, 2]` for pairs, `[B, T, input_size]` for
                features.
            state: State before the first time step. None: the initial state.

        Returns:
            The logits `[B, T, output_size]` and the state after the last time step.
        """
        h, state = self.blocks(self.input_embedding(inputs), state)
        return self.head(self.norm(h)), state

    def initial_state(self, batch_size: int) -> Any:
        """Returns the state before the first time step.

        Args:
            batch_size: Number of sequences B.

        Returns:
            The state, with the batch as the first axis of every tensor.
        """
        return self.blocks.initial_state(batch_size)
