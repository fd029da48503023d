"""Functions of transformers compared with their replacements, before they are replaced."""

from collections.abc import Callable
from functools import partial
from inspect import signature, unwrap
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from fastweights.adapters.transformers.found import Found
from fastweights.adapters.transformers.replacement import SampleCall
from fastweights.core.errors import invalid, require
from fastweights.testing.tolerance import error, tolerance

REMEDY = "It is not replaced. Models that use it run as transformers has them."
FAILURES = (AttributeError, ImportError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""A function that expects other inputs may fail in any of these ways."""


def check(function: Found, replacement: Callable[..., Any]) -> None:
    """Raises `InputError` unless a function has the known arguments and gives the same numbers.

    Results, states that are changed in place and all gradients are compared, for the small calls of its row.
    """
    row = function.replacement
    names = list(signature(function.function).parameters)
    fits = tuple(names[: len(row.parameters)]) == row.parameters and {*names} >= row.options
    expected = f"a function of {', '.join([*row.parameters, *sorted(row.options)])}"
    require(fits, function.path, expected, ", ".join(names), REMEDY)
    # The original inside its decorators, which would warn that it is slow.
    original = unwrap(function.function)
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        for trial in _attempt(function, partial(row.trials, function.module, _draws())):
            expected, result = (_attempt(function, partial(_outcome, f, trial)) for f in (original, replacement))
            same = len(expected) == len(result) and all(map(_are_close, result, expected))
            require(same, function.path, row.memory, "other numbers", REMEDY)


def _draws() -> Callable[..., Tensor]:
    source = torch.Generator("cpu").manual_seed(0)
    return lambda *shape: torch.rand(shape, generator=source, dtype=torch.float32, device="cpu")


def _attempt(function: Found, run: Callable[[], Any]) -> Any:
    """The result of `run`; `InputError` if it fails in one of the `FAILURES`."""
    try:
        return run()
    except FAILURES as failure:
        got = f"{type(failure).__name__} ({' '.join(str(failure).split())})"
        raise invalid(function.path, "a function of such inputs", got, REMEDY) from failure


def _outcome(function: Callable[..., Any], trial: SampleCall) -> list[Any]:
    """The results of a call, and its changed arguments or its gradients."""
    copies = tree_map(lambda x: _copy(x, not trial.in_place), (trial.arguments, dict(trial.options)))
    arguments, options = copies
    with torch.set_grad_enabled(not trial.in_place):
        results = tree_leaves(function(*arguments, **options))
        if trial.in_place:
            return [*results, *tree_leaves(copies)]
        losses = [x.square().sum() for x in results if isinstance(x, Tensor) and x.requires_grad]
        gradients = torch.autograd.grad(losses, _inputs(copies), allow_unused=True) if losses else []
        return [*results, *gradients]


def _copy(x: Any, is_learned: bool) -> Any:
    if not isinstance(x, Tensor):
        return x
    copy = x.detach().clone()
    return copy.requires_grad_() if is_learned and copy.is_floating_point() else copy


def _inputs(arguments: Any) -> list[Tensor]:
    """The tensors that gradients are compared for: arguments, and parameters of modules."""
    leaves = tree_leaves(arguments)
    parameters = [p for x in leaves if isinstance(x, nn.Module) for p in x.parameters()]
    return [*parameters, *(x for x in leaves if isinstance(x, Tensor) and x.requires_grad)]


def _are_close(result: Any, expected: Any) -> bool:
    if not isinstance(expected, Tensor):
        return type(result) is type(expected)
    is_same_kind = isinstance(result, Tensor) and result.dtype == expected.dtype
    return is_same_kind and error(result, expected) < tolerance(torch.float32).gradient
