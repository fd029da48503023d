"""A row of the table of functions that this library replaces in transformers."""

from collections.abc import Callable, Mapping
from functools import cache, reduce, wraps
from importlib.util import find_spec
from math import gcd
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.cell import Cell
from fastweights.compiler.targets.target import TARGETS, target_of
from fastweights.core.traced_constant import traced_constant
from fastweights.dispatch import scan

HAS_FLA = find_spec("fla") is not None
"""Whether flash-linear-attention is installed."""
Draw = Callable[..., Tensor]
"""Draws uniform numbers from [0, 1) in a given shape: the same numbers in every call of `enable`."""


class SampleCall(NamedTuple):
    """A small call of a function, for the comparison with its replacement.

    Attributes:
        arguments: Positional arguments. Gradients of tensors, and of the parameters of modules, are compared.
        options: Keyword arguments.
        in_place: Whether the function changes its arguments and has no gradients. The changed arguments are compared.
    """

    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = {}
    in_place: bool = False


class Replacement(NamedTuple):
    """A function of transformers that has a faster form.

    Attributes:
        name: Regular expression of its name; `Class.method` for a method.
        memory: Description of its memory in one phrase, for messages and pages.
        parameters: Names of its first parameters.
        options: Names of further parameters that it must have.
        fits: Whether the replacement can honour the arguments of a call. Other calls run the original.
        compute: The replacement, called with the arguments of the original.
        trials: Small calls for the comparison, given the module of the function.
        defined_with: Name of another function that the module must have; empty for no other.
    """

    name: str
    memory: str
    parameters: tuple[str, ...]
    options: frozenset[str]
    fits: Callable[..., bool]
    compute: Callable[..., Any]
    trials: Callable[[ModuleType, Draw], list[SampleCall]]
    defined_with: str = ""

    def of(self, function: Callable[..., Any], is_enabled: Callable[[], Any]) -> Callable[..., Any]:
        """The function that stands in for `function`.

        Args:
            function: The original.
            is_enabled: Whether the replacement is in force. Some models keep it for longer.
        """
        fits, compute = self.fits, self.compute

        @wraps(function)
        def run(*arguments: Any, **options: Any) -> Any:
            if is_enabled() and fits(*arguments, **options):
                return compute(*arguments, **options)
            return function(*arguments, **options)

        return run


def is_on_cpu(x: Tensor) -> bool:
    """Whether a tensor is on a CPU."""
    return x.device.type == "cpu"


DEVICES: set[str] = set()
"""Further types of devices on which memories run in chunks, by operations of PyTorch."""


def runs_in_chunks(x: Tensor) -> bool:
    """Whether a memory that runs in chunks is replaced for a tensor: on a CPU, and on the `DEVICES` of `enable`."""
    return is_on_cpu(x) or x.device.type in DEVICES


def has_chunk_kernels(x: Tensor) -> bool:
    """Whether a memory that runs in chunks has kernels for a tensor, also on a GPU with Triton.

    With flash-linear-attention, transformers has kernels of its own on a GPU.
    """
    return runs_in_chunks(x) or (not HAS_FLA and has_kernels(x.device.type))


@cache
def can_build(device: str) -> bool:
    """Whether kernels can be built for a type of devices. The search reads many files; `enable` repeats it."""
    return device in TARGETS and not target_of(device).missing_requirement()


@traced_constant
def has_kernels(device: str) -> bool:
    """`can_build` for calls that `torch.compile` traces."""
    return can_build(device)


def channels_per_head(channels: int, largest: int = 64) -> int:
    """The largest power of two up to `largest` that divides the number of channels.

    The channels of some memories are independent. Heads of 64 channels keep the state of a head in the registers.
    """
    return gcd(channels, largest)


def in_heads(x: Tensor, largest: int = 64) -> Tensor:
    """x `[..., D]` as `[..., H, V]`, with V channels per head: see `channels_per_head`."""
    size = channels_per_head(x.shape[-1], largest)
    return x.unflatten(-1, (x.shape[-1] // size, size))


def scan_in_place(cell: Cell, inputs: Any, state: Tensor, params: Any = None) -> Tensor:
    """The output of `scan` from a state, a tensor that is replaced by the last state.

    A cache may hold a state with other strides or another dtype than kernels write: then the last state is copied.
    """
    before = cell.State(state)
    dtype = reduce(torch.promote_types, (x.dtype for x in inputs), torch.float32)
    if state.is_contiguous() and state.dtype == dtype:
        y, _ = scan(cell, inputs, before, params, state_out=before)
    else:
        y, (last,) = scan(cell, inputs, before, params)
        state.copy_(last)
    return y
