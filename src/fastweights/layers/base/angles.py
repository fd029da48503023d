"""Angles of positions, for sinusoidal and rotary positions."""

import torch
from torch import Tensor


def positions_to_angles(positions: Tensor, size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """positions / 10000^(2i/size) for i < size / 2, `[..., size / 2]`. Cast only the final result to half precision."""
    rates = 10000.0 ** -(torch.arange(0, size, 2, device=positions.device, dtype=dtype) / size)
    return positions.unsqueeze(-1) * rates
