"""Slow weights that a cell uses inside its step, as parameters of a layer."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.cell import Cell
from fastweights.core.errors import require
from fastweights.signature import TensorSpec


class SlowWeights(nn.Module):
    """The fields of `cell.Params`, `[H, ...]`, as parameters of a layer.

    Weights start from N(0, 1 / inputs), small factors from N(0, 0.01^2), gains at 1, and biases at 0.

    A role with "shared" means one parameter for all heads, and one with "fixed" a buffer that is not trained.

    Args:
        cell: The cell that the weights belong to.
        num_heads: Number of heads.
        sizes: Sizes of the letters of the cell.
        constants: Values of the fields with the role "constant", which are not trained.
    """

    def __init__(
        self, cell: Cell, num_heads: int, sizes: Mapping[str, int], constants: Mapping[str, float] | None = None
    ) -> None:
        super().__init__()
        self.cell = cell
        self.slots = cell.slots.get("Params", {})
        self.num_heads = num_heads
        self._constants = dict(constants or {})
        _require_constants(
            cell, [name for name, slot in self.slots.items() if slot.kind == "constant"], self._constants
        )
        for name, slot in self.slots.items():
            require_free(self, name, f"Params of {cell.name}")
            tensor = torch.empty(1 if slot.is_shared else num_heads, *slot.shape(sizes))
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
                case "small":
                    nn.init.normal_(tensor, std=0.01)
                case "gain":
                    nn.init.ones_(tensor)
                case "bias":
                    nn.init.zeros_(tensor)
                case _:
                    nn.init.normal_(tensor).div_(tensor.shape[-1] ** 0.5)

    def forward(self) -> Any:
        """Returns `cell.Params` for `scan`; None for a cell without slow weights."""
        if self.cell.Params is None:
            return None
        return self.cell.Params(*(self._of_all_heads(name, slot) for name, slot in self.slots.items()))

    def _of_all_heads(self, name: str, slot: TensorSpec) -> Tensor:
        weight: Tensor = getattr(self, name)
        return weight.expand(self.num_heads, *weight.shape[1:]) if slot.is_shared else weight


def _require_constants(cell: Cell, names: Sequence[str], constants: Mapping[str, float]) -> None:
    requirement = f"given for {', '.join(names)}" if names else f"left out for {cell.name}, which has none"
    require({*names} == {*constants}, "constants", requirement, ", ".join(constants) or "none")


def require_free(module: nn.Module, name: str, record: str) -> None:
    """`InputError` if the field of a record has the name of an attribute of modules."""
    require(
        not hasattr(module, name),
        record,
        "a record without names of module attributes",
        repr(name),
        "Rename the field.",
    )
