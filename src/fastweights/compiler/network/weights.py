"""The memory of a program's weights: that of the module itself, or copies in another precision."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fastweights.compiler.ir.network import BufferRole, NetworkBuffer, NetworkProgram
from fastweights.compiler.network.guard import ModuleGuard


class Weights:
    """Finds the addresses of the weights of a program, in the order of its arguments.

    Args:
        module: The module.
        program: The program.
        constants: The constant tensors of the program, by name.
        dtype: The dtype of real buffers.
    """

    def __init__(
        self, module: nn.Module, program: NetworkProgram, constants: Mapping[str, Tensor], dtype: torch.dtype
    ) -> None:
        buffers = program.of(BufferRole.WEIGHT)
        scales = [b.scale for b in buffers]
        self.order = [b.name for b in buffers]
        self.constants = {name: x.to(dtype).contiguous() for name, x in constants.items()}
        self.names = [b.name for b in buffers if b not in scales and b.name not in constants]
        self.stored = [b for b in buffers if b.type in ("bfloat16", "int8")]
        self.guard = ModuleGuard(module, self.names)
        self.copies: dict[str, Tensor] = {}
        self.versions: list[int] = []
        self._known: Sequence[int] = []
        self._places: list[int] = []

    def places(self) -> list[int] | None:
        """The addresses, in a new list if any has changed; None if the module has changed in another way."""
        if not self.guard.holds():
            return None
        versions = self._versions()
        if versions != self.versions or self.guard.places is not self._known:
            self.versions, self._known = versions, self.guard.places
            self._places = self._find()
        return self._places

    def _versions(self) -> list[int]:
        """The number of changes of every weight that has a copy."""
        by_name = dict(zip(self.names, self.guard.weights, strict=True)) if self.stored else {}
        return [0 if by_name[b.name].is_inference() else by_name[b.name]._version for b in self.stored]

    def _find(self) -> list[int]:
        tensors = {**self.constants, **dict(zip(self.names, self.guard.weights, strict=True))}
        for buffer in self.stored:
            tensors |= _stored(buffer, tensors[buffer.name])
        self.copies = {name: tensors[name] for name in self.order}
        return [tensors[name].data_ptr() for name in self.order]


def _stored(buffer: NetworkBuffer, weight: Tensor) -> dict[str, Tensor]:
    """A copy of a weight in the type of its buffer, and the scales of its rows."""
    weight = weight.detach()
    if buffer.scale is None:
        return {buffer.name: weight.to(torch.bfloat16)}
    scale = weight.abs().amax(dim=1).clamp(min=torch.finfo(weight.dtype).tiny) / 127
    return {buffer.name: (weight / scale.unsqueeze(1)).round().to(torch.int8), buffer.scale.name: scale}
