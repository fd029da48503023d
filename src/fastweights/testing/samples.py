"""Random inputs for any cell, drawn from its signature: the same numbers on every device."""

from collections.abc import Callable
from string import ascii_uppercase
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fastweights.cell import Cell
from fastweights.signature import TensorSpec


class Shape(NamedTuple):
    """Sizes of a sample."""

    B: int
    T: int
    H: int
    K: int
    V: int


def sample_inputs(cell: Cell, shape: Shape, dtype: torch.dtype = torch.float64, seed: int = 0) -> Any:
    """Inputs like those of a slow network: positive keys of length 1, rates and decays in (0, 1), Gaussian values."""
    generator = torch.Generator().manual_seed(seed)
    return cell.Inputs(
        *(
            _draw(slot, (shape.B, shape.T, shape.H), shape, generator).to(dtype)
            for slot in cell.slots["Inputs"].values()
        )
    )


def sample_state(cell: Cell, shape: Shape, dtype: torch.dtype = torch.float64, seed: int = 1) -> Any:
    """A random state, within the range of the states of a cell."""
    generator = torch.Generator().manual_seed(seed)
    leading = (shape.B, shape.H)
    return cell.State(*(_draw(slot, leading, shape, generator).to(dtype) for slot in cell.slots["State"].values()))


def sample_params(cell: Cell, shape: Shape, dtype: torch.dtype = torch.float64, seed: int = 2) -> Any:
    """Slow weights of about unit gain; None for a cell without slow weights."""
    if cell.Params is None:
        return None
    generator = torch.Generator().manual_seed(seed)
    return cell.Params(*(_draw(slot, (shape.H,), shape, generator).to(dtype) for slot in cell.slots["Params"].values()))


def sample_reset(shape: Shape, seed: int = 3) -> Tensor:
    """Resets at about every fifth step, but not at the first, where there would be no gradient to the state."""
    reset = torch.rand(shape.B, shape.T, generator=torch.Generator().manual_seed(seed), device="cpu") < 0.2
    reset[:, 0] = False
    return reset.to(torch.get_default_device())


def _draw(slot: TensorSpec, leading: tuple[int, ...], shape: Shape, generator: torch.Generator) -> Tensor:
    size = (*leading, *slot.shape({**OWN, "K": shape.K, "V": shape.V, "R": max(3, shape.V)}))
    drawn = in_role(slot, torch.randn(size, generator=generator, dtype=torch.float64, device="cpu"))
    return drawn.to(torch.get_default_device())


def in_role(slot: TensorSpec, x: Tensor) -> Tensor:
    """Numbers mapped to the range of a role: rates to (0, 1), keys to positive vectors of length 1."""
    return ROLES.get(slot.kind, lambda x: x)(x)


OWN = dict.fromkeys(ascii_uppercase, 2)
"""Sizes of all letters but K, V and R. R, the units of a recurrent network, is V, but at least 3."""


ROLES: dict[str, Callable[[Tensor], Tensor]] = {
    "key": lambda x: normalize(x.abs() + 0.1, dim=-1),
    "rate": torch.sigmoid,
    "control": torch.sigmoid,
    "decay": lambda x: (x + 1).sigmoid(),
    "weight": lambda x: x / x.shape[-1] ** 0.5,
    "small": lambda x: x / 10,
    "gain": lambda x: 1 + x / 10,
    "constant": torch.sigmoid,
    # Positive: an accumulator of keys is a denominator.
    "memory": torch.abs,
    "gram": lambda x: x @ x.mT / x.shape[-1],
    "contraction": lambda x: x @ x.mT / x.square().sum((-2, -1), keepdim=True),
    "count": lambda x: (20 * x.abs()).floor(),
    # Of unit length: a softmax of numbers in the hundreds would amplify rounding errors.
    "output": lambda x: x / x.shape[-1] ** 0.5,
}
