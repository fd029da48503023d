"""Deterministic parameter-free projection."""

from collections.abc import Callable

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.feature_maps._function import FunctionMap


class DPFP(FunctionMap):
    """Deterministic parameter-free projection (DPFP): sparse products.

        u = relu([x, -x])
        phi(x)_ij = u_i u_(i-j), j = 1, ..., nu

    It has 2 nu times as many features as inputs.

    Source: Schlag et al. 2021 (arXiv:2102.11174), Eq. 37 and Listing 1.

    Args:
        size: Size of the input.
        nu: Number of shifts j, from 1 to 2 size - 1.

    Raises:
        InputError: `nu` is out of range.

    Example:
        >>> DPFP(size=4, nu=2)(torch.randn(3, 4)).shape
        torch.Size([3, 16])
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
