"""One layer between an embedding and a linear map: the smallest model of symbols with a memory."""

from typing import Any

from torch import Tensor, nn

from fastweights.core.arguments import Count, Size, checked
from fastweights.layers import LayerKind, make_layer, with_short_convolution
from fastweights.models._embedding import tokens_of
from fastweights.models._tokens import check_known, check_targets, check_tokens, token_losses


class SymbolModel(nn.Module):
    """Smallest model of symbols with a memory: embedding, one layer, linear map.

        "logits of" x_(t+1) = W y_t + b

    y is the output of one layer of any kind, which reads the embeddings of x_1, ..., x_t.

    Args:
        vocab_size: Number of symbols N.
        layer: Layer, as in `make_layer`.
        units: Size D of the layer and of the embeddings.
        num_heads: Number of heads of the layer. Layers without heads ignore it.
        conv_size: Width of a causal convolution in front of the layer; 0 for none.
        options: Options of the layer, by name.

    Example:
        >>> import torch
        >>> model = SymbolModel(vocab_size=10, layer="delta-net", units=16, num_heads=2)
        >>> logits, state = model(torch.randint(10, (2, 8)))
        >>> logits.shape
        torch.Size([2, 8, 10])
    """

    @checked
    def __init__(
        self,
        vocab_size: Size,
        layer: LayerKind,
        units: Size,
        num_heads: Size = 1,
        conv_size: Count = 0,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, units)
        self.layer = with_short_convolution(make_layer(layer, units, num_heads, **(options or {})), units, conv_size)
        self.output = nn.Linear(units, vocab_size)

    def forward(self, tokens: Tensor, state: Any = None, targets: Tensor | None = None) -> tuple[Tensor, Any]:
        """Computes the logits of the next symbol, or the losses of targets.

        Args:
            tokens: Symbols, int `[B, T]`.
            state: State before the first symbol. None: the initial state.
            targets: Targets, int `[B, T]`.

        Returns:
            The logits `[B, T, N]`, or with targets the losses in nats, `[B, T]` in float32 or float64 also under
            autocast; and the state after the last symbol.
        """
        check_tokens(tokens)
        check_known(tokens, tokens_of(self.embedding))
        y, state = self.layer(self.embedding(tokens), state)
        logits = self.output(y)
        if targets is None:
            return logits, state
        check_targets(targets, tokens)
        return token_losses(logits, targets), state

    def initial_state(self, batch_size: int) -> Any:
        """Returns the initial state of the layer.

        Args:
            batch_size: Number of sequences B.

        Returns:
            The state, with the batch as the first axis of every tensor.
        """
        return self.layer.initial_state(batch_size)  # type: ignore[operator]
