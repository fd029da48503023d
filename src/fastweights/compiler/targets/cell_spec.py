"""The specification that a kernel is built for: a cell, the size of every axis, and a dtype."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fastweights.cell import Cell


@dataclass(frozen=True)
class CellSpec:
    """A cell with a size for every axis, in alphabetical order, and a dtype."""

    cell: Cell
    sizes: Mapping[str, int]
    dtype: torch.dtype

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", dict(sorted(self.sizes.items())))

    @property
    def title(self) -> str:
        """The first line of a source text."""
        axes = ", ".join(f"{axis}={size}" for axis, size in self.sizes.items())
        return f"{self.cell.name} with {axes} in {str(self.dtype).removeprefix('torch.')}"
