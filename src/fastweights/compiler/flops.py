"""Floating-point operations of a scan, for `torch.utils.flop_counter`: two per product of numbers."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from fastweights.cell import Cell
from fastweights.compiler import lowered
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.nodes import Apply, Constant, Expression, Region, Value, behind, volume
from fastweights.compiler.ir.passes import Phase
from fastweights.compiler.op import sizes_of
from fastweights.compiler.specialise.specialisations import BY_KEY


def products(phase: Phase) -> int:
    """Products of one time step of one head."""
    loops: list[Region | Value] = [body for definition in behind(phase.results) for body in definition.bodies]
    return sum(volume(loop.shape) * _products_in(loop.expression) for loop in [*loops, *phase.results])


def _products_in(expression: Expression) -> int:
    """Products of two numbers neither of which is constant: a difference is a sum with a product by -1."""
    if not isinstance(expression, Apply):
        return 0
    is_product = expression.function == "mul" and not any(isinstance(x, Constant) for x in expression.arguments)
    return is_product + sum(map(_products_in, expression.arguments))


@cache
def _flops(key: str, sizes: tuple[tuple[str, int], ...], dtype: torch.dtype) -> dict[str, int]:
    """Operations of one time step of one head, by the way over time: two per product, as in a matrix product."""
    form = BY_KEY.get(key)
    try:
        found = lowered(Cell.of_key(key) if form is None else form.cell, dict(sizes), dtype)
    except Unsupported:
        return dict.fromkeys(("forward", "again", "backward"), 0)  # on the meta device, where shapes need no kernel
    return {way: 2 * products(phase) for way, phase in found.ways.items()}


def _flops_of(cell: str, tensors: Sequence[Tensor], ways: Sequence[str]) -> int:
    form = BY_KEY.get(cell)
    sizes = sizes_of(Cell.of_key(cell) if form is None else form.cell, tensors)
    a_step = _flops(cell, tuple(sizes.items()), tensors[0].dtype)
    return volume(tensors[0].shape[:3]) * sum(a_step[way] for way in ways)


@register_flop_formula(torch.ops.fastweights.scan, get_raw=True)
def scan_flops(cell: str, tensors: list[Tensor], *given: Any, out_val: Any = None) -> int:
    """Operations of the forward pass."""
    return _flops_of(cell, tensors, ("forward",))


@register_flop_formula(torch.ops.fastweights.scan_backward, get_raw=True)
def scan_backward_flops(cell: str, tensors: list[Tensor], *given: Any, out_val: Any = None) -> int:
    """Operations of the backward pass, which computes the states of a chunk a second time."""
    return _flops_of(cell, tensors, ("again", "backward"))
