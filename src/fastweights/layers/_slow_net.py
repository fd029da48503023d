"""The slow net: emits keys, values, queries and rates for a cell, sized from the cell's signature."""

import inspect
import re
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.catalogue import FEATURE_MAPS, NORMALISERS
from fastweights.cell import Cell
from fastweights.errors import InputError, require


def feature_map(name: str, size: int) -> Any:
    """A feature map by name; a trailing number is its one option.

    >>> feature_map("dpfp-3", size=16).output_size
    96
    """
    match = re.fullmatch(r"(.+)-(\d+)", name)
    if match is None or name in FEATURE_MAPS.names():
        return FEATURE_MAPS.load(name)(size)
    kind = FEATURE_MAPS.load(match[1])
    takes_option = len(inspect.signature(kind).parameters) > 1
    require(takes_option, "feature_map", f"'{match[1]}', which has no option", f"'{name}'")
    return kind(size, int(match[2]))


class SlowNet(nn.Module):
    """Emits the inputs of a cell for every step and head: one linear map without bias, then a squashing a role.

    Keys and queries go through the feature map and the normaliser, rates through a sigmoid, decays through a sigmoid
    with a learned bias a head. One head's outputs lie together, in the order of the cell's inputs.

    Source: Schlag et al. 2021, Eqs. 20-23.
    """

    def __init__(
        self, d_model: int, heads: int, cell: Cell, key_size: int, value_size: int, features: str, normaliser: str
    ) -> None:
        super().__init__()
        self.heads = heads
        self.cell = cell
        self.feature_map = feature_map(features, key_size)
        self.normalise = NORMALISERS.load(normaliser)
        self.slots = cell.slots["Inputs"]
        self.sizes = {"K": self.feature_map.output_size, "V": value_size}
        self.widths = [_width(slot.axes, {"K": key_size, "V": value_size}, cell) for slot in self.slots.values()]
        self.projection = nn.Linear(d_model, heads * sum(self.widths), bias=False)
        if any(slot.role == "decay" for slot in self.slots.values()):
            self.decay_bias = nn.Parameter(_spread_decays(heads))

    def forward(self, x: Tensor) -> Any:
        """x `[B, T, D]` -> `cell.Inputs` of tensors `[B, T, H, ...]`."""
        parts = self.projection(x).unflatten(-1, (self.heads, -1)).split(self.widths, dim=-1)
        fields = dict(zip(self.slots, parts, strict=True))
        keys = [name for name, slot in self.slots.items() if slot.role == "key"]
        # All keys in one call: random features must be the same for keys and queries.
        mapped = self.normalise(self.feature_map(torch.stack([fields[name] for name in keys])))
        fields.update(zip(keys, mapped, strict=True))
        return self.cell.Inputs(*(self._squash(name, value) for name, value in fields.items()))

    def _squash(self, name: str, value: Tensor) -> Tensor:
        match self.slots[name].role:
            case "rate":
                return value.squeeze(-1).sigmoid()
            case "decay":
                return (value.squeeze(-1) + self.decay_bias).sigmoid()
            case _:
                return value


def _width(axes: str, sizes: dict[str, int], cell: Cell) -> int:
    if axes not in ("", "K", "V"):
        raise InputError(f"cell must be one with inputs of axes '', 'K' or 'V', got {axes!r} in {cell.name}.")
    return sizes.get(axes, 1)


def _spread_decays(heads: int) -> Tensor:
    """Biases for decays from 0.9 to 0.999, so that the heads start with memories of some 10 to 1000 steps."""
    forgotten = torch.logspace(-1, -3, heads)
    return (1 / forgotten - 1).log()
