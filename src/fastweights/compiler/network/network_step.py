"""A compiled step of a module: the C++ of its program, built, and called with tensors."""

import threading
from ctypes import c_char_p, c_int
from struct import Struct
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.compiler.clean_thread import alone
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.network.emit import Source, source
from fastweights.compiler.network.group import group
from fastweights.compiler.network.guard import ModuleGuard
from fastweights.compiler.network.leaves import leaves, rebuilt
from fastweights.compiler.network.lower import lower
from fastweights.compiler.network.program import Buffer, Program, Role
from fastweights.compiler.network.trace import trace
from fastweights.compiler.targets.cpp import build
from fastweights.compiler.targets.cpp.cpu import lanes

DTYPES = {"real": torch.float32, "int64": torch.int64, "bool": torch.bool}
LINE = 64
"""Bytes of a line of the cache, at which scratch memory begins."""


class NetworkStep:
    """One compiled step of a module, for arguments with the shapes and types of an example.

    Args:
        module: The module. Its weights are read where they are, at every step.
        arguments: An example: tensors, None, and one nested tuple of tensors, which is the state before the step. The
            last result of the module must be the state after the step.

    Raises:
        Unsupported: A part of the module does not compile. The message names it.
        Unbuilt: There is no C++ compiler, or it fails.
    """

    def __init__(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        name = type(module).__name__
        self.program, constants, self._results = alone(_program, module, arguments)
        weights = self.program.of(Role.WEIGHT)
        self._constants = [constants[b.name].float().contiguous() for b in weights if b.name in constants]
        self.guard = ModuleGuard(module, [b.name for b in weights if b.name not in constants])
        text = source(self.program, torch.float32, lanes(torch.float32))
        self._call = _built(f"network-{name}", text)
        given = [b for b in self.program.buffers if b.role in (Role.INPUT, Role.STATE)]
        self._made = [b for b in self.program.buffers if b.role in (Role.OUTPUT, Role.NEW_STATE)]
        self._pack = Struct(f"{len(given) + len(self._made) + 1}P").pack
        self._places: list[int] = []
        self._packed = b""
        self._scratch = _Scratch(text)

    def __call__(self, tensors: list[Tensor]) -> Any:
        """The results for the tensors of the arguments; None if the step must run layer by layer.

        The step runs layer by layer if the module has changed, and if an index is out of range.
        """
        if not self.guard.holds():
            return None
        if self.guard.places is not self._places:
            self._places = self.guard.places
            places = [*self._places, *map(Tensor.data_ptr, self._constants)]
            self._packed = Struct(f"{len(places)}P").pack(*places)
        given = [x if x.is_contiguous() and not x.is_neg() else x.resolve_neg().contiguous() for x in tensors]
        made = [torch.empty(b.shape, dtype=DTYPES[b.type]) for b in self._made]
        threads = torch.get_num_threads()
        addresses = map(Tensor.data_ptr, (*given, *made))
        packed = self._packed + self._pack(*addresses, self._scratch.address(threads))
        return None if self._call(packed, threads) else rebuilt(self._results, iter(made))


class _Scratch(threading.local):
    """Scratch memory, for every thread of Python its own."""

    def __init__(self, text: Source) -> None:
        self.text, self.threads = text, 0
        self.memory = torch.empty(0)

    def address(self, threads: int) -> int:
        if threads > self.threads:
            self.threads = threads
            self.memory = torch.empty(self.text.shared + threads * self.text.private + LINE)
        return (self.memory.data_ptr() + LINE - 1) // LINE * LINE


def _program(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Program, dict[str, Tensor], Any]:
    """The program, its constants, and the structure of the results."""
    at = next(n for n, argument in enumerate(arguments) if isinstance(argument, tuple))
    before, states = len(leaves(arguments[:at])[0]), _kinds(arguments[at])
    traced = trace(module, arguments)
    lowered = lower(traced, range(before, before + len(states)))
    results = leaves(traced.results)[0]
    first = len(results) - len(states)
    if states != _kinds(traced.results[-1]):
        raise Unsupported("a state that changes its shape or type from step to step", "", "a state of one shape")
    program = group(lowered, f"One step of {type(module).__name__}", range(first, len(results)))
    return program, lowered.constants, traced.results


def _kinds(state: Any) -> list[tuple[tuple[int, ...], torch.dtype]]:
    return [(tuple(x.shape), x.dtype) for x in leaves(state)[0]]


def _built(name: str, text: Source) -> Any:
    stem = build.stem(name, build.source_digest(text.text))
    library = build.load(stem) or build.build(text.text, stem)
    library.network_step.restype, library.network_step.argtypes = c_int, [c_char_p, c_int]
    return library.network_step
