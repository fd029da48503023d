"""Deterministic parameter-free projection."""

from collections.abc import Callable

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.feature_maps._function import FunctionMap


class DPFP(FunctionMap):
    """phi(x)[i, j] = u[i] u[i-j] with u = relu([x, -x]), j = 1..nu: sparse products, 2 nu times as many as inputs.

    Source: Schlag et al. 2021, Eq. 37 and Listing 1.
    """

    def __init__(self, size: int, nu: int = 1) -> None:
        super().__init__(size)
        require(1 <= nu < 2 * size, "nu", f"from 1 to {2 * size - 1} for keys of size {size}", nu)
        self.nu = nu
        self.output_size = 2 * size * nu

    @property
    def function(self) -> Callable[[Tensor], Tensor]:
        """The map phi as a function."""
        nu = self.nu
        return lambda x: products(x, nu)


def products(x: Tensor, nu: int) -> Tensor:
    """u[i] u[i-j] with u = relu([x, -x]), for j = 1..nu."""
    u = torch.relu(torch.cat([x, -x], dim=-1))
    return torch.cat([u * u.roll(j, dims=-1) for j in range(1, nu + 1)], dim=-1)
