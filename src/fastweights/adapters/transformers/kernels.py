"""The memories of Hugging Face's models on a CPU: this library's kernels in place of loops written in PyTorch."""

import logging
from collections.abc import Collection
from threading import RLock

import torch

from fastweights.adapters.transformers.found import Found, functions
from fastweights.adapters.transformers.replacement import DEVICES, can_build
from fastweights.adapters.transformers.self_test import check
from fastweights.adapters.transformers.version import check_version
from fastweights.core.errors import InputError, require

log = logging.getLogger("fastweights")
_replaced: list[Found] = []
_lock = RLock()


def enable(devices: Collection[str] = ()) -> list[str]:
    """Runs the memories of transformers' models on this library's kernels, where tensors are on a CPU.

    Every model of the installed version that has such a function is changed, whether it was loaded before or not. The
    functions are found by name. Each is replaced only if its arguments are known, and if its values, final state and
    gradients for small inputs are those of its replacement, to the rounding of float32. A function that differs keeps
    its place, and a line in the log names it. Up to transformers 5.16 a model looks its functions up when it is made:
    call this before.

    The short convolutions in front of the memories are replaced, too. Packed sequences do not see each other, in the
    models whose layers receive their boundaries.

    Args:
        devices: Further types of devices, such as "mps" or "xpu". There the delta rules, the SSD of Mamba-2 and
            lightning attention read sequences in chunks, by operations that all devices of PyTorch have.

    Returns:
        The functions that were replaced.

    Raises:
        InputError: transformers is not installed, or is too old, or PyTorch has no such type of devices.
    """
    check_version()
    for device in devices:
        _check_device(device)
    with _lock:
        DEVICES.clear()
        DEVICES.update(devices)
        can_build.cache_clear()
        if not _replaced:
            equal = [function for function in functions() if _is_equal(function)]
            for function in equal:
                replacement = function.replacement.of(function.function, lambda: _replaced)
                setattr(function.owner, function.name, replacement)
            _replaced.extend(equal)
        return [function.path for function in _replaced]


def disable() -> None:
    """Puts back the functions that `enable` replaced. Models that were made in between use them again, too."""
    with _lock:
        for function in _replaced:
            setattr(function.owner, function.name, function.function)
        _replaced.clear()
        DEVICES.clear()


def _check_device(device: str) -> None:
    try:
        is_type = torch.device(device).index is None
    except RuntimeError:
        is_type = False
    require(is_type, "devices", 'types of devices of PyTorch, such as ["mps"]', repr(device), "Correct it.")


def _is_equal(function: Found) -> bool:
    """Whether the replacement of a function does the same; if not, a line in the log names the function."""
    try:
        check(function, function.replacement.of(function.function, lambda: True))
    except InputError as refusal:
        log.warning("%s", refusal)
        return False
    return True
