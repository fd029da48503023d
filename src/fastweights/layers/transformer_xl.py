"""Transformer-XL's attention: relative positions, and a memory of past inputs."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fastweights.core.arguments import Size
from fastweights.core.errors import require
from fastweights.layers.base.angles import positions_to_angles
from fastweights.layers.base.attention import attention
from fastweights.layers.base.cell_layer import require_heads
from fastweights.layers.base.layer import Controls, Layer
from fastweights.layers.base.like import zeros
from fastweights.layers.base.window_cache import empty_cache, last, number_segments, still_valid, visible
from fastweights.state import register_state


@register_state
class TransformerXLState(NamedTuple):
    """The last inputs, `[B, mem_len, D]`, and whether each position is filled, bool `[B, mem_len]`."""

    memory: Tensor
    filled: Tensor


class TransformerXL(Layer):
    """Transformer-XL attention: relative positions and cached inputs.

        a_ij = ((q_i + u) . k_j + (q_i + v) . r_(i-j)) / sqrt(d)
        y_i = softmax(a_i) V

    r are sinusoids of the distance through a separate projection; u and v are learned vectors per head. Every step
    attends to itself and exactly the last `mem_len` steps ("same length" in the authors' code), so that the output does
    not depend on how a sequence is split. The state holds inputs, from which keys and values are recomputed, and
    gradients flow into it. The paper stops gradients at the memory. To train in this way, detach the state between
    windows.

    Source: Dai et al. 2019 (arXiv:1901.02860), Sec. 3.3: the four terms of A^rel; 384 steps of memory: Schlag et al.
    2021 (arXiv:2102.11174).

    Can: accumulate.

    Args:
        d_model: Size D of the input and the output. It must be even, since half of the components of a position are
            sines.
        num_heads: Number of heads. It must divide `d_model`.
        mem_len: Number of earlier time steps that a step attends to.

    Raises:
        InputError: `num_heads` does not divide `d_model`, `d_model` is odd, or `mem_len` is below 1.

    Example:
        >>> layer = TransformerXL(d_model=64, num_heads=4, mem_len=32)
        >>> y, state = layer(torch.randn(2, 10, 64))
        >>> y.shape
        torch.Size([2, 10, 64])
    """

    def __init__(self, d_model: Size, num_heads: Size = 8, mem_len: Size = 384) -> None:
        super().__init__()
        require_heads(d_model, num_heads)
        require(d_model % 2 == 0, "d_model", "even, since positions are pairs of a sine and a cosine", d_model)
        self.input_size = self.d_model = d_model
        self.num_heads = num_heads
        self.mem_len = mem_len
        self.content_bias, self.position_bias = (
            nn.Parameter(torch.empty(num_heads, d_model // num_heads)) for _ in range(2)
        )
        self.reset_parameters()
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key_value = nn.Linear(d_model, 2 * d_model, bias=False)
        self.position = nn.Linear(d_model, d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def reset_parameters(self) -> None:
        """Draws u and v; the linear maps initialise themselves."""
        for bias in (self.content_bias, self.position_bias):
            nn.init.normal_(bias, std=0.02)

    def run(
        self,
        x: Tensor,
        state: TransformerXLState | None,
        reset: Tensor | None,
        lengths: Tensor | None,
        controls: Controls,
    ) -> tuple[Tensor, TransformerXLState]:
        """Runs the layer on checked inputs."""
        cache = empty_cache(self.initial_state(x.shape[0])) if state is None else state
        past = torch.cat([cache.memory, x], dim=1)
        segments = number_segments(cache.filled, reset, x.shape[1])
        mask = visible(segments, x.shape[1], self.mem_len + 1)
        read = self._attend(self._split(self.query(x)), past, mask.unsqueeze(1))
        ends = None if lengths is None else cache.memory.shape[1] + lengths
        after = TransformerXLState(last(past, self.mem_len, ends), still_valid(segments, self.mem_len, ends))
        return self.output(read.transpose(1, 2).flatten(2)), after

    def initial_state(self, batch_size: int) -> TransformerXLState:
        """Returns an empty memory."""
        filled = zeros(self, batch_size, self.mem_len, dtype=torch.bool)
        return TransformerXLState(zeros(self, batch_size, self.mem_len, self.d_model), filled)

    def _attend(self, q: Tensor, past: Tensor, mask: Tensor) -> Tensor:
        """Queries `[B, H, T, d]` over all inputs `[B, L, D]` -> `[B, H, T, d]`."""
        k, v = (self._split(part) for part in self.key_value(past).chunk(2, dim=-1))
        # Unused distances only cost time. An exported program cannot depend on the length of the past.
        reach = self.mem_len if torch.compiler.is_exporting() else min(self.mem_len, past.shape[1] - 1)
        scores = _shift(self._position_scores(q, reach))[..., -past.shape[1] :] * q.shape[-1] ** -0.5
        return attention(q + self.content_bias.unsqueeze(1), k, v, mask=scores.masked_fill(~mask, -torch.inf))

    def _position_scores(self, q: Tensor, reach: int) -> Tensor:
        """(q + v).r for the distances `reach` down to 0, `[B, H, T, reach + 1]`."""
        distances = torch.arange(reach, -1, -1, device=q.device)
        angles = positions_to_angles(distances, self.d_model)
        sinusoids = torch.cat([angles.sin(), angles.cos()], dim=-1)
        r = self.position(sinusoids.to(q.dtype)).unflatten(-1, (self.num_heads, -1)).transpose(0, 1)
        return (q + self.position_bias.unsqueeze(1)) @ r.transpose(-1, -2)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def _shift(scores: Tensor) -> Tensor:
    """Moves scores by distance, `[..., T, reach + 1]`, to their positions among all steps, `[..., T, reach + T]`.

    Row i moves i positions to the right. To do so, T zeros are appended to every row, and the flattened rows are cut
    into rows that are one entry shorter. All other entries of a row are 0 and outside the reach of its step.
    """
    steps, width = scores.shape[-2:]
    flat = pad(scores, (0, steps)).flatten(-2)
    return flat[..., : steps * (width + steps - 1)].unflatten(-1, (steps, width + steps - 1))
