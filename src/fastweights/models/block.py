"""A block: a layer that remembers and a network that does not, each with a residual connection."""

from typing import Any

from torch import Tensor, nn

from fastweights.errors import require


class Block(nn.Module):
    """Pre-LN: h = x + layer(LN(x)), y = h + FF(LN(h)); post-LN: h = LN(x + layer(x)), y = LN(h + FF(h)).

    Source: Vaswani et al. 2017 (post-LN); Xiong et al. 2020 (pre-LN).
    """

    def __init__(self, layer: nn.Module, d_model: int, d_ff: int, dropout: float = 0.0, norm: str = "pre") -> None:
        super().__init__()
        require(norm in ("pre", "post"), "norm", "'pre' or 'post'", repr(norm))
        self.pre = norm == "pre"
        self.layer = layer
        self.layer_norm = nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model)
        )
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, state: Any = None, reset: Tensor | None = None) -> tuple[Tensor, Any]:
        """The interface of a layer."""
        if self.pre:
            y, state = self.layer(self.layer_norm(x), state, reset)
            h = x + self.dropout(y)
            return h + self.dropout(self.feed_forward(self.feed_forward_norm(h))), state
        y, state = self.layer(x, state, reset)
        h = self.layer_norm(x + self.dropout(y))
        return self.feed_forward_norm(h + self.dropout(self.feed_forward(h))), state

    def initial_state(self, batch_size: int) -> Any:
        """The layer's."""
        return self.layer.initial_state(batch_size)  # type: ignore[operator]
