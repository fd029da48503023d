"""The tiers of the tests: `make check` runs quick tests, `make test` all but slow tests, `make test-all` all tests."""

from collections.abc import Hashable, Mapping
from typing import Any

import pytest
import torch

from fastweights import Cell
from fastweights.layers import make_layer
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape

CORE = ("delta", "gated-delta", "mlstm", "srwm", "delta-rnn", "neurons-and-synapses", "ttt-mlp", "delta-product")
"""Cells that `make test` runs at every shape in every dtype."""
OF_SHAPES = {
    "float64_equals_reference": torch.float64,
    "float32_equals_reference": torch.float32,
    "bfloat16_equals_reference": torch.float32,
}
"""Checks that compare with the reference at several shapes, and the dtype of the computation in the kernels."""
OF_TRACERS = ("compiles", "exports")
"""Checks that depend on the kinds of tensors of a cell, and not on its step."""
QUICK = ("float64_equals_reference", "whole_equals_split", "packed_equals_separate", "is_causal")
"""Checks of rules that `make check` runs on its backend."""

ODD = scan_checks.ODD
OTHERS = [(dtype, shape) for dtype, shapes in scan_checks.SHAPES.items() for shape in shapes if shape != ODD]


def shapes_by_tier(name: str, dtype: torch.dtype) -> tuple[list[Shape], list[Shape]]:
    """The shapes at which `make test` runs a cell in a dtype, and the further shapes of `make test-all`.

    Every cell has the odd shape in every dtype. An ordinary cell has one of the other pairs of a dtype and a shape, in
    turn, so that every pair covers a sixth of the ordinary cells.
    """
    number = sorted(set(Cell.names()) - set(CORE)).index(name) if name not in CORE else 0
    chosen = OTHERS if name in CORE else [OTHERS[number % len(OTHERS)]]
    shapes = scan_checks.SHAPES[dtype]
    now = [shape for shape in shapes if shape == ODD or (dtype, shape) in chosen]
    return now, [shape for shape in shapes if shape not in now]


def kinds(cell: Cell) -> set[Hashable]:
    """The kinds of tensors in every record of a cell, on which tracers depend."""
    return {(record, slot.kind) for record, slots in cell.slots.items() for slot in slots.values()}


def base_of(layer: str) -> type:
    """The class whose forward pass a layer inherits."""
    return type(make_layer(layer, 16, num_heads=2)).__base__


def first_of(kinds: Mapping[Any, set[Any]]) -> list[Any]:
    """The cases with a kind that no case before them has."""
    covered: set[Any] = set()
    first = []
    for case, of in kinds.items():
        first += [] if of <= covered else [case]
        covered |= of
    return first


def in_tiers(kinds: Mapping[Any, set[Any]]) -> list[Any]:
    """Test cases: `make test` runs the first case of every kind."""
    first = first_of(kinds)
    return [pytest.param(case, marks=slow_unless(case in first)) for case in kinds]


def slow_unless(condition: bool) -> list[pytest.MarkDecorator]:
    """The marks of a case that `make test` runs only under a condition."""
    return [] if condition else [pytest.mark.slow]
