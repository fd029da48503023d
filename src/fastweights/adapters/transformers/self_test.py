"""Functions of transformers held against what replaces them, before they are replaced."""

from collections.abc import Callable, Sequence
from inspect import signature, unwrap
from typing import Any

import torch
from torch import Tensor

from fastweights.adapters.transformers.found import CONVOLUTION, Found
from fastweights.adapters.transformers.replacements import CONVOLUTION_PARAMETERS, OPTIONS, PARAMETERS
from fastweights.core.errors import invalid, require
from fastweights.testing.tolerance import error, tolerance

KEPT = "It is not replaced. Models that use it run as transformers has them."
B, T, H, K, V = 1, 5, 2, 6, 8


def check(found: Found, replacement: Callable[..., Any]) -> None:
    """Raises `InputError` unless a function has the known arguments and, for a memory, gives the same numbers.

    The values, the final state and all gradients of a small input are compared.
    """
    parameters, options = (CONVOLUTION_PARAMETERS, set()) if found.kind == CONVOLUTION else (PARAMETERS, OPTIONS)
    names = list(signature(found.function).parameters)
    fits = tuple(names[: len(parameters)]) == parameters and {*names} >= options
    require(fits, found.path, f"a function of {', '.join([*parameters, *sorted(options)])}", ", ".join(names), KEPT)
    if found.kind != CONVOLUTION:
        # The original inside its decorators, which would warn that it is slow.
        wanted, got = (_outcome(f, found) for f in (unwrap(found.function), replacement))
        same = len(wanted) == len(got) and all(map(_are_close, got, wanted))
        require(same, found.path, f"{found.kind} as in Qwen3-Next and Kimi-Linear", "other numbers", KEPT)


def _outcome(function: Callable[..., Any], found: Found) -> Sequence[Tensor]:
    """Output, final state and gradients for an input that is always the same."""
    with torch.inference_mode(False), torch.enable_grad():
        *given, start = inputs = [x.requires_grad_() for x in _inputs(found.kind)]
        query, key, value, g, beta = given
        options = {"initial_state": start, "output_final_state": True, "use_qk_l2norm_in_kernel": True}
        try:
            results = function(query, key, value, g=g, beta=beta, **options)
            return [*results, *torch.autograd.grad([x.square().sum() for x in results], inputs)]
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as failure:
            # A function that expects other inputs may fail in any of these ways.
            got = f"{type(failure).__name__} ({' '.join(str(failure).split())})"
            raise invalid(found.path, "a function of such inputs", got, KEPT) from failure


def _inputs(kind: str) -> list[Tensor]:
    source = torch.Generator("cpu").manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, generator=source, dtype=torch.float32, device="cpu")

    decay = -draw(B, T, H, K) if kind == "kimi_delta_attention" else -draw(B, T, H)
    query, key, value, start = (
        draw(*shape) - 0.5 for shape in ((B, T, H, K), (B, T, H, K), (B, T, H, V), (B, H, K, V))
    )
    return [query, key, value, decay, draw(B, T, H), start]


def _are_close(got: Any, wanted: Any) -> bool:
    both = isinstance(got, Tensor) and isinstance(wanted, Tensor) and got.dtype == wanted.dtype
    return both and error(got, wanted) < tolerance(torch.float32).gradient
