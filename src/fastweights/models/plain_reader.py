"""One layer between an embedding and a linear map: the smallest model of symbols with a memory."""

from typing import Any

from torch import Tensor, nn

from fastweights.core.arguments import Count, Size, checked
from fastweights.layers import LayerKind, behind_convolution, make_layer
from fastweights.models._embedding import tokens_of
from fastweights.models._tokens import check_known, check_tokens, token_losses


class PlainReader(nn.Module):
    """logits of x_{t+1} = W y_t + b, y from one layer of any kind that reads embeddings of x_1, ..., x_t.

    Args:
        vocab_size: Number of symbols.
        layer: A layer, as in `make_layer`, with `options`.
        units: D, the size of the layer and of the embeddings.
        num_heads: Heads of the layer, if it has any.
        conv_size: Width of a causal convolution in front of the layer; 0 for none.
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
        self.layer = behind_convolution(make_layer(layer, units, num_heads, **(options or {})), units, conv_size)
        self.output = nn.Linear(units, vocab_size)

    def forward(self, tokens: Tensor, state: Any = None, targets: Tensor | None = None) -> tuple[Tensor, Any]:
        """Maps tokens int `[B, T]` to logits `[B, T, N]` of the next token and the state after the last one.

        With targets int `[B, T]` it returns the losses in nats instead of the logits, `[B, T]` in float32 or float64,
        also under autocast.
        """
        check_tokens(tokens)
        check_known(tokens, tokens_of(self.embedding))
        y, state = self.layer(self.embedding(tokens), state)
        logits = self.output(y)
        return (logits if targets is None else token_losses(logits, targets)), state

    def initial_state(self, batch_size: int) -> Any:
        """Returns the initial state of the layer."""
        return self.layer.initial_state(batch_size)  # type: ignore[operator]
