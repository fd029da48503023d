"""The slow weights that a cell uses inside its step, as the parameters of a layer."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.cell import Cell
from fastweights.core.errors import require
from fastweights.signature import Slot


class SlowWeights(nn.Module):
    """`cell.Params`, `[H, ...]`: weights start as N(0, 1 / inputs), gains at 1, biases at 0; constants are given.

    A role that begins with "shared" means one parameter for all heads, one with "fixed" a buffer that is not learned.

    Args:
        cell: The cell that the weights belong to.
        heads: Number of heads.
        sizes: The cell's letters.
        constants: The values of the fields with the role "constant", numbers that are not learned.
    """

    def __init__(
        self, cell: Cell, heads: int, sizes: Mapping[str, int], constants: Mapping[str, float] | None = None
    ) -> None:
        super().__init__()
        self.cell = cell
        self.slots = cell.slots.get("Params", {})
        self.heads = heads
        self._constants = dict(constants or {})
        _require_constants(
            cell, [name for name, slot in self.slots.items() if slot.kind == "constant"], self._constants
        )
        for name, slot in self.slots.items():
            require_free(self, name, f"Params of {cell.name}")
            tensor = torch.empty(1 if slot.is_shared else heads, *slot.shape(sizes))
            if slot.kind == "constant" or slot.role.startswith("fixed"):
                self.register_buffer(name, tensor)
            else:
                self.register_parameter(name, nn.Parameter(tensor))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws weights, and sets gains, biases and constants."""
        for name, slot in self.slots.items():
            tensor = getattr(self, name)
            match slot.kind:
                case "constant":
                    nn.init.constant_(tensor, self._constants[name])
                case "gain":
                    nn.init.ones_(tensor)
                case "bias":
                    nn.init.zeros_(tensor)
                case _:
                    nn.init.normal_(tensor).div_(tensor.shape[-1] ** 0.5)

    def forward(self) -> Any:
        """The record that `scan` takes, None for a cell without slow weights."""
        if self.cell.Params is None:
            return None
        return self.cell.Params(*(self._of_all_heads(name, slot) for name, slot in self.slots.items()))

    def _of_all_heads(self, name: str, slot: Slot) -> Tensor:
        weight: Tensor = getattr(self, name)
        return weight.expand(self.heads, *weight.shape[1:]) if slot.is_shared else weight


def _require_constants(cell: Cell, names: Sequence[str], given: Mapping[str, float]) -> None:
    wanted = f"given for {', '.join(names)}" if names else f"left out for {cell.name}, which has none"
    require({*names} == {*given}, "constants", wanted, ", ".join(given) or "none")


def require_free(module: nn.Module, name: str, record: str) -> None:
    """`InputError` if the field of a record has the name of what every module has."""
    require(not hasattr(module, name), record, "of fields with other names", repr(name), "A module uses that name.")
