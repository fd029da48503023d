"""Compiles cells: from a step in plain PyTorch to kernels, in passes that stand here one a line.

What a pass makes is a record that no later one changes: `verify.py` says what is well formed, `interpret.py` what it
means, and `show.py` how it is written. `docs/compiler.md` follows one small cell through all of them.
"""

from collections.abc import Mapping

import torch

from fastweights.cell import Cell
from fastweights.compiler.clean_thread import alone
from fastweights.compiler.frontend.lower import lower
from fastweights.compiler.frontend.trace import trace
from fastweights.compiler.ir.passes import Phases, phases


def lowered(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> Phases:
    """What the kernels of a cell compute, whatever the target.

    Raises:
        Unsupported: the cell leaves the subset that compiles.
    """
    return alone(_lowered, cell, dict(sorted(sizes.items())), dtype)


def _lowered(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> Phases:
    traced = trace(cell, sizes, dtype)  # the step and its gradient, as a graph of PyTorch's core operations
    step = lower(traced)  # the same in the compiler's own language, with sums of products taken apart (algebra.py)
    return phases(step)  # three ways over time, and what is kept between them: what a target is given
