"""Checks the chunkwise backend with inputs in bfloat16 in a separate process with Triton's interpreter.

    TRITON_INTERPRET=1 python tests/interpreted_half.py results_are_rounded_twice CELL ...

prints a line `CELL ok` or `CELL` with the error for every cell.
"""

import sys

import torch

from fastweights import Cell
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape
from fastweights.testing.tolerance import error, tolerance
from interpreted import CHECKS, main, run_apart, sample_arguments


def results_are_rounded_twice(cell: Cell) -> None:
    """Values and gradients, with resets to zeros, have at most the error of float32 and of two roundings.

    The gradients of an input that a scan reads twice are rounded, added and rounded again.
    """
    a = sample_arguments(cell, Shape(1, 20, 1, 2, 3), torch.bfloat16)._replace(initial_state=None)
    got = scan_checks.results_and_gradients(cell, "chunkwise", a)
    want = scan_checks.results_and_gradients(cell, "reference", a.to(torch.float64))
    for name, tensor in got.items():
        limit = 2 * error(want[name].to(tensor.dtype), want[name]) + tolerance(torch.float32).gradient
        off = error(tensor, want[name])
        assert off <= limit, f"{name} is off by {off:.1e}, more than {limit:.1e}"


if __name__ == "__main__":
    CHECKS[results_are_rounded_twice.__name__] = results_are_rounded_twice
    run_apart(sys.argv[1:], main)
