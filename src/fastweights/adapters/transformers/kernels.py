"""The memories of Hugging Face's models on a CPU: this library's kernels in place of loops written in PyTorch."""

import re
from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights import functional
from fastweights.adapters.transformers.version import check_version
from fastweights.errors import require

MEMORIES: dict[str, Callable[..., functional.Result]] = {
    "gated_delta_rule": functional.gated_delta_rule,
    "kimi_delta_attention": functional.kimi_delta_attention,
}
"""How the names of their functions end, after `chunk_` or `recurrent_`, and what computes the same."""
PARAMETERS = ("query", "key", "value", "g", "beta")
OPTIONS = {"initial_state", "output_final_state", "use_qk_l2norm_in_kernel"}


class Loop(NamedTuple):
    """A function of a module of transformers that runs a memory over time."""

    module: ModuleType
    name: str
    function: Callable[..., Any]
    memory: str


_replaced: list[Loop] = []


def enable() -> list[str]:
    """Lets the models of transformers run their memories with this library's kernels, where tensors are on a CPU.

    Every model of the installed version that has such a function is changed, whether it was loaded before or not;
    their functions are found by name and arguments. To 5.16 a model looks its function up when it is made: call this
    before. Prefill, decoding with a cache and training give the numbers that they gave, to the rounding of float32.

    Returns:
        The functions that were replaced.

    Raises:
        InputError: transformers is not installed, is of a version that is not known to work, or has such a function
            with other arguments. Then nothing has been changed.
    """
    check_version()
    if not _replaced:
        loops = list(_loops())
        for loop in loops:
            _check_arguments(loop)
        for loop in loops:
            setattr(loop.module, loop.name, _instead_of(loop))
        _replaced.extend(loops)
    return [f"{loop.module.__name__}.{loop.name}" for loop in _replaced]


def disable() -> None:
    """Puts back what `enable` replaced. Models that were made in between go back to their loops, too."""
    for loop in _replaced:
        setattr(loop.module, loop.name, loop.function)
    _replaced.clear()


def _loops() -> Iterator[Loop]:
    """In the order of their names. A module is imported only if its text has such a function: there are hundreds."""
    import transformers

    named = re.compile(rf"^def (\w*(?:chunk|recurrent)_({'|'.join(MEMORIES)}))\(", re.MULTILINE)
    for file in sorted(Path(transformers.__file__).parent.glob("models/*/modeling_*.py")):
        text = file.read_text(encoding="utf-8")
        found = named.findall(text) if any(f"_{memory}(" in text for memory in MEMORIES) else []
        for name, memory in found:
            module = import_module(f"transformers.models.{file.parent.name}.{file.stem}")
            yield Loop(module, name, getattr(module, name), memory)


def _check_arguments(loop: Loop) -> None:
    names = list(signature(loop.function).parameters)
    fits = tuple(names[: len(PARAMETERS)]) == PARAMETERS and {*names} >= OPTIONS
    wanted = f"a function of {', '.join([*PARAMETERS, *sorted(OPTIONS)])}"
    remedy = "Nothing was replaced. Take another version of transformers."
    require(fits, f"{loop.module.__name__}.{loop.name}", wanted, ", ".join(names), remedy)


def _instead_of(loop: Loop) -> Callable[..., Any]:
    function, memory = loop.function, MEMORIES[loop.memory]

    @wraps(function)
    def run(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, **options: Any) -> functional.Result:
        if query.device.type != "cpu" or not _replaced:
            return function(query, key, value, g=g, beta=beta, **options)
        # Each of fewer heads of keys serves several heads of values.
        served = value.shape[2] // key.shape[2]
        if served > 1:
            query, key = (x.repeat_interleave(served, dim=2) for x in (query, key))
        known = {name: options[name] for name in OPTIONS & options.keys()}
        known["state_out"] = _overwritten(known.get("initial_state"))
        return memory(query, key, value, g, beta, cu_seqlens=options.get("cu_seqlens"), **known)

    return run


def _overwritten(state: Tensor | None) -> Tensor | None:
    """The state, if it is one that a cache of transformers keeps at one address: what comes back it copies there, and a
    decoded token would wait for nothing else as long."""
    is_kept = hasattr(state, "_dynamo_static_input_type") and not torch.is_grad_enabled()
    fits = is_kept and state is not None and state.dtype == torch.float32 and state.is_contiguous()
    return state if fits else None
