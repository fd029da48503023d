"""Builds and calls the C++ of a network step."""

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_char_p, c_int
from struct import Struct
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from fastweights.compiler.clean_thread import alone
from fastweights.compiler.network.emit import source
from fastweights.compiler.network.group import group
from fastweights.compiler.network.lower import lower
from fastweights.compiler.network.program import Role
from fastweights.compiler.network.trace import trace
from fastweights.compiler.targets.cpp import build
from fastweights.compiler.targets.cpp.cpu import lanes

DTYPES = {"real": torch.float32, "int64": torch.int64, "bool": torch.bool}


class NetworkStep:
    """One compiled step of a module for arguments of one shape.

    Args:
        module: The module, in evaluation mode.
        arguments: Arguments of a call.
        state: Position of the state among the arguments. The last result is the state after the step.

    Raises:
        Unsupported: A part of the module does not compile.
        Unbuilt: There is no C++ compiler, or it fails.
    """

    def __init__(self, module: nn.Module, arguments: tuple[Any, ...], state: int) -> None:
        before = len(tree_flatten(arguments[:state])[0])
        count = len(tree_flatten(arguments[state])[0])
        traced = alone(trace, module, arguments)
        total = traced.results.num_leaves
        lowered = lower(traced, range(before, before + count))
        self.results = traced.results
        program = group(lowered, f"One step of {type(module).__name__}", range(total - count, total))
        text = source(program, torch.float32, lanes(torch.float32))
        stem = build.stem(f"network-{type(module).__name__}", build.source_digest(text.text))
        library = build.load(stem) or build.build(text.text, stem)
        self.program, self.text = program, text
        self._call = library.network_step
        self._call.restype, self._call.argtypes = c_int, [c_char_p, c_int]
        self._weights = [self._weight(module, lowered.constants, b.name) for b in program.of(Role.WEIGHT)]
        self._made = [b for b in program.buffers if b.role in (Role.OUTPUT, Role.NEW_STATE)]
        threads = torch.get_num_threads()
        self._scratch = torch.zeros(text.shared + threads * text.private + 16)
        self._pack = Struct(f"{len([b for b in program.buffers if b.role is not Role.SCRATCH]) + 1}P").pack

    def _weight(self, module: nn.Module, constants: Mapping[str, Tensor], name: str) -> Callable[[], Tensor]:
        if name in constants:
            constant = constants[name].float().contiguous()
            return lambda: constant
        path, _, leaf = name.rpartition(".")
        owner = module.get_submodule(path)
        table = owner._parameters if leaf in owner._parameters else owner._buffers
        return lambda: table[leaf]

    def __call__(self, *arguments: Any) -> Any:
        given = [x.contiguous() for x in tree_flatten(arguments)[0]]
        made = [torch.empty(b.shape, dtype=DTYPES[b.type]) for b in self._made]
        places = [weight().data_ptr() for weight in self._weights]
        pointers = {Role.WEIGHT: iter(places), Role.INPUT: iter([x.data_ptr() for x in given])}
        pointers[Role.STATE] = pointers[Role.INPUT]
        pointers[Role.OUTPUT] = pointers[Role.NEW_STATE] = iter([x.data_ptr() for x in made])
        packed = [next(pointers[b.role]) for b in self.program.buffers if b.role is not Role.SCRATCH]
        start = (self._scratch.data_ptr() + 63) // 64 * 64
        if self._call(self._pack(*packed, start), torch.get_num_threads()):
            raise IndexError("index out of range")
        return tree_unflatten(made, self.results)
