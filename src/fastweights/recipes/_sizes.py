"""Checks of the flags that set the size of a model."""

from typing import Any

from fastweights.core.errors import require
from fastweights.training.settings._training import require_numbers

WIDEST, DEEPEST = 1 << 20, 1000
"""Upper limits of sizes and of the number of blocks. Whether a model fits into memory is not checked."""


def check_sizes(flags: Any) -> None:
    """Raises unless `d_model`, `num_heads`, `d_ff`, `num_layers` and `dropout` are in their ranges."""
    require_numbers(flags, ("d_model", "num_heads", "d_ff"), 1, WIDEST)
    require_numbers(flags, ("num_layers",), 1, DEEPEST)
    require(0 <= flags.dropout < 1, "dropout", "from 0 to below 1", flags.dropout)
