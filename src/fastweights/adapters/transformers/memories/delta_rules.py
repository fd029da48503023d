"""The gated delta rule of Qwen3-Next and its relatives, and Kimi delta attention."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fastweights import functional
from fastweights.adapters.transformers.groups import Groups
from fastweights.adapters.transformers.packed_rows import resets
from fastweights.adapters.transformers.replacement import Draw, Replacement, SampleCall, has_chunk_kernels
from fastweights.functional import OutputAndState

PARAMETERS = ("query", "key", "value", "g", "beta")
OPTIONS = frozenset({"initial_state", "output_final_state", "use_qk_l2norm_in_kernel"})


def compute(
    memory: Callable[..., OutputAndState],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    **options: Any,
) -> OutputAndState:
    """Runs a memory of `fastweights.functional`. Packed sequences do not see each other."""
    (b, T, H, _), G = value.shape, key.shape[2]
    arguments = {name: options[name] for name in OPTIONS & options.keys()} | {"reset": resets(options, b, T)}
    if T == 1 or G == H:
        query, key = (x if G == H else x.repeat_interleave(H // G, 2) for x in (query, key))
        overwritten = _overwritten(arguments.get("initial_state"))
        return memory(query, key, value, g, beta, **arguments, state_out=overwritten)
    groups, state = Groups(b, G), arguments.get("initial_state")
    arguments |= {"reset": groups.rows(arguments["reset"])}
    arguments |= {"initial_state": None if state is None else groups.split_state(state)}
    inputs = (groups.shared(query, H), groups.shared(key, H), *map(groups.split, (value, g, beta)))
    o, last = memory(*inputs, **arguments)
    return groups.merged(o), None if last is None else groups.merged_state(last)


def _overwritten(state: Tensor | None) -> Tensor | None:
    """The state, if a cache of transformers keeps it at one address.

    The cache would copy the new state there, which takes as long as everything else about a decoded token.
    """
    is_kept = hasattr(state, "_dynamo_static_input_type") and not torch.is_grad_enabled()
    fits = is_kept and state is not None and state.dtype == torch.float32 and state.is_contiguous()
    return state if fits else None


def _fits(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> bool:
    return has_chunk_kernels(query)


def _trials(per_key: bool, module: ModuleType, draw: Draw) -> list[SampleCall]:
    B, T, H, K, V = 1, 5, 2, 6, 8
    decay = -draw(B, T, H, K) if per_key else -draw(B, T, H)
    query, key, value, state = (
        draw(*shape) - 0.5 for shape in ((B, T, H, K), (B, T, H, K), (B, T, H, V), (B, H, K, V))
    )
    options = {"initial_state": state, "output_final_state": True, "use_qk_l2norm_in_kernel": True}
    return [SampleCall((query, key, value, decay, draw(B, T, H)), options)]


def _replacement(name: str, memory: str, run: Callable[..., OutputAndState], per_key: bool) -> Replacement:
    pattern = rf"\w*(?:chunk|recurrent)_{name}"
    return Replacement(pattern, memory, PARAMETERS, OPTIONS, _fits, partial(compute, run), partial(_trials, per_key))


GATED = _replacement("gated_delta_rule", "the gated delta rule", functional.gated_delta_rule, per_key=False)
KIMI = _replacement("kimi_delta_attention", "Kimi delta attention", functional.kimi_delta_attention, per_key=True)
