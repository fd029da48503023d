"""The memories of Hugging Face's models on a CPU: this library's kernels in place of loops written in PyTorch."""

import logging
from collections.abc import Callable
from typing import Any

from fastweights.adapters.transformers import replacements
from fastweights.adapters.transformers.found import CONVOLUTION, Found, functions
from fastweights.adapters.transformers.self_test import check
from fastweights.adapters.transformers.version import check_version
from fastweights.core.errors import InputError

log = logging.getLogger("fastweights")
_replaced: list[Found] = []


def enable() -> list[str]:
    """Runs the memories of transformers' models on this library's kernels, where tensors are on a CPU.

    Every model of the installed version that has such a function is changed, whether it was loaded before or not. The
    functions are found by name. Each is replaced only if its arguments are known, and if its values, final state and
    gradients for a small input are those of its replacement, to the rounding of float32. A function that differs keeps
    its place, and a line in the log names it. Up to transformers 5.16 a model looks its functions up when it is made:
    call this before.

    Convolutions in front of the memories are replaced where sequences are packed: they keep them apart.

    Returns:
        The functions that were replaced.

    Raises:
        InputError: transformers is not installed, or is too old.
    """
    check_version()
    if not _replaced:
        fitting = [(function, replacement) for function in functions() if (replacement := _fitting(function))]
        for function, replacement in fitting:
            setattr(function.module, function.name, replacement)
            _replaced.append(function)
    return [function.path for function in _replaced]


def disable() -> None:
    """Puts back the functions that `enable` replaced. Models that were made in between use them again, too."""
    for function in _replaced:
        setattr(function.module, function.name, function.function)
    _replaced.clear()


def _fitting(function: Found) -> Callable[..., Any] | None:
    """The replacement of a function; None, and a line in the log, if it does not do the same."""
    try:
        check(function, _replacement(function, lambda: True))
    except InputError as refusal:
        log.warning("%s", refusal)
        return None
    return _replacement(function, lambda: _replaced)


def _replacement(function: Found, is_enabled: Callable[[], Any]) -> Callable[..., Any]:
    if function.kind == CONVOLUTION:
        return replacements.convolution(function.function, is_enabled)
    return replacements.memory(function.function, function.kind, is_enabled)
