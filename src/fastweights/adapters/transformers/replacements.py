"""This library's functions with the arguments of those of transformers."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from fastweights import functional
from fastweights.adapters.transformers.sequences import Sequences
from fastweights.functional import OutputAndState

COMPUTED: dict[str, Callable[..., OutputAndState]] = {
    "gated_delta_rule": functional.gated_delta_rule,
    "kimi_delta_attention": functional.kimi_delta_attention,
}
"""Functions of this library by the names of memories in transformers."""
PARAMETERS = ("query", "key", "value", "g", "beta")
OPTIONS = {"initial_state", "output_final_state", "use_qk_l2norm_in_kernel"}
CONVOLUTION_PARAMETERS = ("hidden_states", "weight", "bias", "activation")


def memory(function: Callable[..., Any], kind: str, is_enabled: Callable[[], Any]) -> Callable[..., OutputAndState]:
    """A memory on this library's kernels, for tensors on a CPU. Packed sequences do not see each other.

    Args:
        function: The function to replace, which other devices run.
        kind: Its memory, a key of `COMPUTED`.
        is_enabled: Whether the replacement is in force. Some models keep it longer than that.
    """
    compute = COMPUTED[kind]

    @wraps(function)
    def run(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, **options: Any) -> OutputAndState:
        if query.device.type != "cpu" or not is_enabled():
            return function(query, key, value, g=g, beta=beta, **options)
        # Every head of keys serves several heads of values, if there are fewer.
        served = value.shape[2] // key.shape[2]
        if served > 1:
            query, key = (x.repeat_interleave(served, dim=2) for x in (query, key))
        known = {name: options[name] for name in OPTIONS & options.keys()}
        given = (query, key, value, g, beta)
        sequences = Sequences.of(options, *value.shape[:2])
        if sequences is None:
            return compute(*given, **known, state_out=_overwritten(known.get("initial_state")))
        known["initial_state"] = sequences.initial(known.get("initial_state"))
        o, last = compute(*map(sequences.in_a_row, given), cu_seqlens=sequences.ends, **known)
        return sequences.in_rows(o), sequences.final(last)

    return run


def convolution(function: Callable[..., Tensor], is_enabled: Callable[[], Any]) -> Callable[..., Tensor]:
    """A short causal convolution whose packed sequences do not see each other, for tensors on a CPU.

    Args:
        function: The function to replace, `[B, D, T]` to `[B, D, T]`. It runs on every sequence alone.
        is_enabled: Whether the replacement is in force.
    """

    @wraps(function)
    def run(
        hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Any = None, **options: Any
    ) -> Tensor:
        B, _, T = hidden_states.shape
        replaces = hidden_states.device.type == "cpu" and is_enabled()
        sequences = Sequences.of(options, B, T) if replaces else None
        if sequences is None:
            return function(hidden_states, weight, bias, activation=activation, **options)
        row = sequences.in_a_row(hidden_states.transpose(1, 2)).transpose(1, 2)
        lengths = [length for length in sequences.ends.diff().tolist() if length]
        parts = [function(part, weight, bias, activation=activation) for part in row.split(lengths, 2)]
        return sequences.in_rows(torch.cat(parts, 2).transpose(1, 2)).transpose(1, 2)

    return run


def _overwritten(state: Tensor | None) -> Tensor | None:
    """The state, if a cache of transformers keeps it at one address.

    The cache would copy the new state there, which takes as long as everything else about a decoded token.
    """
    is_kept = hasattr(state, "_dynamo_static_input_type") and not torch.is_grad_enabled()
    fits = is_kept and state is not None and state.dtype == torch.float32 and state.is_contiguous()
    return state if fits else None
