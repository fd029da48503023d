"""Layers of Mamba and Mamba-2: their path without a GPU, which is slow in flash-linear-attention."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fastweights.adapters.fla.short_convolution import causal_conv1d
from fastweights.adapters.transformers.memories.selective_scan import scan_channels
from fastweights.adapters.transformers.memories.ssd import chunk_scan
from fastweights.core.autocast import at_least_float32

Outputs = tuple[Tensor, Tensor | None, Tensor]
"""The output `[B, T, D]`, and the states of the convolution and of the memory."""


def slow_forward(
    self: Any,
    input_states: Tensor,
    last_state: Mapping[str, Tensor] | None = None,
    use_cache: bool | None = False,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> Outputs:
    """A layer of Mamba, from input_states `[B, T, D]`.

    Args:
        self: The layer.
        input_states: Inputs.
        last_state: States of the convolution `[B, D, W]` and of the memory `[B, D, N]`; zeros if None.
        use_cache: Whether to return the state of the convolution.
        attention_mask: 1 for time steps and 0 for padding, `[B, T]`. It has no effect after a state.
        **kwargs: Not used, as in the original.
    """
    x, gate = self.in_proj(input_states).chunk(2, -1)
    x, convolved = _convolved(self, x, last_state, use_cache, attention_mask)
    time_step, B, C = self.x_proj(x).split([self.dt_rank, self.ssm_state_size, self.ssm_state_size], -1)
    dt, A = time_step @ self.dt_proj.weight.mT, -at_least_float32(self.A_log).exp()
    before = None if last_state is None else last_state["recurrent_state"]
    y, last = scan_channels(x, dt, A, B, C, self.D, self.dt_proj.bias, before)
    return self.out_proj((y * self.act(gate)).to(input_states.dtype)), convolved, last


def torch_forward(
    self: Any,
    input_states: Tensor,
    last_state: Mapping[str, Tensor] | None = None,
    use_cache: bool = False,
    attention_mask: Tensor | None = None,
) -> Outputs:
    """A layer of Mamba-2, with the arguments of `slow_forward`. The state of the memory is `[B, H, P, N]`.

    Head h reads group h * G // H of B and C, as on a GPU. The original reads group h % G in a sequence.
    """
    state_size = self.n_groups * self.ssm_state_size
    projected = self.in_proj(input_states)[..., -self.intermediate_size - self.conv_dim - self.num_heads :]
    gate, x, dt = projected.split([self.intermediate_size, self.conv_dim, self.num_heads], -1)
    x, convolved = _convolved(self, x, last_state, use_cache, attention_mask)
    x, B, C = x.split([self.intermediate_size, state_size, state_size], -1)
    x = x.unflatten(-1, (self.num_heads, self.head_dim))
    B, C = (part.unflatten(-1, (self.n_groups, self.ssm_state_size)) for part in (B, C))
    before = None if last_state is None else last_state["recurrent_state"]
    rates = {"dt_bias": self.dt_bias, "dt_softplus": True, "dt_limit": self.dt_limit}
    options = {"initial_states": before, "return_final_states": True, **rates}
    y, last = chunk_scan(x, dt, -at_least_float32(self.A_log).exp(), B, C, self.chunk_size, **options)
    y = (y + self._get_D(expand_to_head_dim=True) * x).flatten(2)
    y = self.norm(y, gate) if self.rmsnorm else y * self.act(gate)
    return self.out_proj(y.to(input_states.dtype)), convolved, last


def _convolved(
    self: Any, x: Tensor, last_state: Mapping[str, Tensor] | None, use_cache: bool | None, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Inputs of the memory, which the short convolution filters, and the state of the convolution."""

    def without_padding(x: Tensor) -> Tensor:
        is_padded = last_state is None and mask is not None and mask.shape == x.shape[:2]
        return (x * mask[..., None]).to(x.dtype) if is_padded and mask is not None else x

    before = None if last_state is None else last_state["conv_state"]
    weight, bias = self.conv1d.weight[:, 0], self.conv1d.bias
    returns_state = bool(use_cache) or before is not None
    y, last = causal_conv1d(without_padding(x), weight, bias, initial_state=before, output_final_state=returns_state)
    return without_padding(self.act(y)), last
