"""A classifier of variable-length sequences."""

from typing import Any

from torch import Tensor, nn

from fastweights.core.arguments import Count, Probability, Size, checked
from fastweights.core.padding import mask_steps, valid_steps
from fastweights.layers import LayerKinds
from fastweights.models._input_embedding import make_input_embedding
from fastweights.models.blocks import Blocks
from fastweights.models.stack import make_stack


class SequenceClassifier(nn.Module):
    """Classifier of variable-length sequences: mean pooling over a stack of blocks.

        y = W "mean"_t(h_t) + b

    h is the normalised output of blocks over any layer. The mean is over the time steps before the padding.

    Args:
        kind: Kind of inputs: "tokens" or "features".
        input_size: Number of tokens or features.
        output_size: Number of classes.
        layer: Layer, or several that alternate, as in `make_layers`.
        d_model: Size D of the residual stream.
        num_layers: Number of blocks.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks.
        dropout: Dropout probability.
        conv_size: Width of a causal convolution in front of every layer; 0 for none.
        norm: Position of LayerNorm, from `fastweights list norms`.
        options: Options of the layers, by name.

    Example:
        >>> import torch
        >>> model = SequenceClassifier(
        ...     "tokens", 10, 3, d_model=16, num_layers=1, num_heads=2
        ... )
        >>> model((torch.randint(10, (2, 8)), torch.tensor([8, 5]))).shape
        torch.Size([2, 1, 3])
    """

    @checked
    def __init__(
        self,
        kind: str,
        input_size: Size,
        output_size: Size,
        layer: LayerKinds = "delta-net",
        d_model: Size = 64,
        num_layers: Size = 2,
        num_heads: Size = 4,
        d_ff: Size = 128,
        dropout: Probability = 0.0,
        conv_size: Count = 0,
        norm: str = "pre",
        options: dict[str, Any] | None = None,
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
            conv_size=conv_size,
            options=options,
        )
        self.blocks = make_stack(blocks)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, output_size)

    def forward(self, inputs: Any, answers: int = 1) -> Tensor:
        """Classifies padded sequences.

        Args:
            inputs: A pair of values and lengths: int `[B, T]` for tokens or `[B, T, input_size]` for features, and int
                `[B]`.
            answers: Number of outputs per sequence, 1.

        Returns:
            The logits `[B, 1, output_size]`.
        """
        values, lengths = inputs
        h, _ = self.blocks(self.input_embedding(values), lengths=lengths)
        hidden = mask_steps(valid_steps(lengths, h.shape[1]), self.norm(h))
        logits: Tensor = self.head(hidden.sum(1, keepdim=True) / lengths[:, None, None])
        return logits
