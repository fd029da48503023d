"""A compiled step of a module: the C++ of its program, built, and called with tensors."""

import threading
from collections.abc import Sequence
from struct import Struct
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.compiler.clean_thread import run_in_clean_thread
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.network import BufferRole, NetworkBuffer, Precision
from fastweights.compiler.network.leaves import builder, rebuilt
from fastweights.compiler.network.make_program import passes_of, program_of
from fastweights.compiler.network.precision import store_weights
from fastweights.compiler.network.weights import Weights
from fastweights.compiler.targets.target import BuiltNetwork, target_of

LINE = 64
"""Bytes of a line of the cache, at which scratch memory begins."""


class NetworkStep:
    """One compiled step of a module, for arguments with the shapes and types of an example.

    Args:
        module: The module. Its weights are read where they are, at every step.
        arguments: An example: tensors, None, and one nested tuple of tensors, which is the state before the step. The
            last result of the module must be the state after the step.
        precision: How the matrices of the module are stored. In another precision than float32 they are copies, which
            are made again when the weights change.

    Raises:
        Unsupported: A part of the module does not compile. The message names it.
        Unbuilt: There is no C++ compiler, or it fails.
    """

    def __init__(self, module: nn.Module, arguments: tuple[Any, ...], precision: Precision = "float32") -> None:
        self.program, lowered, self._results = run_in_clean_thread(program_of, module, arguments)
        if lowered.windows > MOST_WINDOWS:
            raise Unsupported("a convolution over large images", "", "the convolutions of PyTorch")
        constants, dtype = lowered.constants, lowered.dtype or torch.float32
        self.dtypes = {"real": dtype, "int64": torch.int64, "bool": torch.bool, "uint8": torch.uint8}
        if precision != "float32" and dtype == torch.float32:
            store_weights(self.program, precision)
        self.weights = Weights(module, self.program, constants, dtype)
        target: Any = target_of("cpu")
        built: BuiltNetwork = target.network(self.program, dtype, passes_of)
        self.call = built.function
        self.arguments = [b for b in self.program.buffers if b.role in (BufferRole.INPUT, BufferRole.STATE)]
        self.made = [b for b in self.program.buffers if b.role in (BufferRole.OUTPUT, BufferRole.NEW_STATE)]
        self._pack = Struct(f"{len(self.arguments) + len(self.made) + 1}P").pack
        self._places: list[int] = []
        self._packed = b""
        self.built, self.dtype, self._scratch = built, dtype, _Scratch(built, dtype)
        # `torch.empty_like` of a tensor takes half the time of `torch.empty` of a shape.
        self._like = [torch.empty((), dtype=self.dtypes[b.type]).expand(b.shape) for b in self.made]
        self._build, self.state = builder(self._results), self._results[-1]

    def __call__(self, tensors: list[Tensor]) -> Any:
        """The results for the tensors of the arguments; None if the step must run layer by layer.

        The step runs layer by layer if the module has changed, and if an index is out of range.
        """
        places = self.weights.places()
        if places is None:
            return None
        arguments = [x if x.is_contiguous() and not x.is_neg() else x.resolve_neg().contiguous() for x in tensors]
        made = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in self._like]
        threads = torch.get_num_threads()
        failed = self.call(self.addresses(places, arguments, made, self._scratch.address(threads)), threads)
        return None if failed else self._build(iter(made))

    def addresses(self, places: list[int], arguments: Sequence[Tensor], made: Sequence[Tensor], scratch: int) -> bytes:
        """The addresses of all weights, other arguments and scratch memory, as C reads them."""
        if places is not self._places:
            self._places, self._packed = places, Struct(f"{len(places)}P").pack(*places)
        return self._packed + self._pack(*map(Tensor.data_ptr, (*arguments, *made)), scratch)

    def empty(self, buffers: Sequence[NetworkBuffer]) -> list[Tensor]:
        return [torch.empty(b.shape, dtype=self.dtypes[b.type]) for b in buffers]


MOST_WINDOWS = 1 << 20
"""Largest number of elements of the windows of a convolution. They must fit into the cache of a core. Otherwise the
convolutions of PyTorch are faster."""
CHECKED = 16
"""Number of steps after which `OwnState` checks that the module is still the one that was compiled."""


class OwnState:
    """A compiled step with memory of its own for the state, which is updated in place.

    Numbers of weights that change are read at the next step. Other changes of the module are noticed after `CHECKED`
    steps at the latest.

    Args:
        step: The compiled step.
        tensors: The tensors of the arguments of the first step.
    """

    def __init__(self, step: NetworkStep, tensors: Sequence[Tensor]) -> None:
        self.step, self.count = step, 0
        self.arguments = [x.clone(memory_format=torch.contiguous_format) for x in tensors]
        roles = [b.role for b in step.arguments]
        self.inputs = [x for x, role in zip(self.arguments, roles, strict=True) if role is BufferRole.INPUT]
        self.states = [x for x, role in zip(self.arguments, roles, strict=True) if role is BufferRole.STATE]
        self.outputs = step.empty([b for b in step.made if b.role is BufferRole.OUTPUT])
        self.scratch, self.threads = _Scratch(step.built, step.dtype), 0

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor] | None:
        """The results but the state; None if the step must run layer by layer. The state is then unchanged."""
        threads = torch.get_num_threads()
        if self.count % CHECKED == 0 or threads != self.threads:
            places = self.step.weights.places()
            if places is None:
                return None
            self.threads = threads
            self.packed = self.step.addresses(
                places, self.arguments, [*self.outputs, *self.states], self.scratch.address(threads)
            )
        if [(x.shape, x.dtype) for x in inputs] != [(x.shape, x.dtype) for x in self.inputs]:
            return None
        self.count += 1
        for place, x in zip(self.inputs, inputs, strict=True):
            place.copy_(x)
        return None if self.step.call(self.packed, threads) else [y.clone() for y in self.outputs]

    def state(self) -> Any:
        """A copy of the state."""
        return rebuilt(self.step.state, (x.clone() for x in self.states))


class _Scratch(threading.local):
    """Scratch memory, separate for every thread of Python."""

    def __init__(self, built: BuiltNetwork, dtype: torch.dtype) -> None:
        self.built, self.threads = built, 0
        self.memory = torch.empty(0, dtype=dtype)

    def address(self, threads: int) -> int:
        if threads > self.threads:
            self.threads = threads
            self.memory = self.memory.new_empty(self.built.shared + threads * self.built.private + LINE)
        return (self.memory.data_ptr() + LINE - 1) // LINE * LINE
