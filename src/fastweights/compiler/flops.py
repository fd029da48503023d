"""The number of floating-point operations of a scan, for `torch.utils.flop_counter`: two per product."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from fastweights.cell import Cell
from fastweights.compiler import pipeline
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.nodes import Apply, Constant, Expression, Region, Value, ancestors, volume
from fastweights.compiler.ir.passes import Pass
from fastweights.compiler.op import sizes_of
from fastweights.compiler.specialise.specialisations import BY_KEY


def products(kernel_pass: Pass) -> int:
    """Number of products in one time step of one head."""
    loops: list[Region | Value] = [body for node in ancestors(kernel_pass.results) for body in node.bodies]
    return sum(volume(loop.shape) * _products_in(loop.expression) for loop in [*loops, *kernel_pass.results])


def _products_in(expression: Expression) -> int:
    """Number of products of two variables. A product with a constant is not counted: a difference contains one."""
    if not isinstance(expression, Apply):
        return 0
    is_product = expression.function == "mul" and not any(isinstance(x, Constant) for x in expression.arguments)
    return is_product + sum(map(_products_in, expression.arguments))


@cache
def _flops(key: str, sizes: tuple[tuple[str, int], ...], dtype: torch.dtype) -> dict[str, int]:
    """Operations per time step and head of every pass: two per product, as in a matrix product."""
    form = BY_KEY.get(key)
    try:
        passes = pipeline.passes(Cell.of_key(key) if form is None else form.cell, dict(sizes), dtype)
    except Unsupported:
        return dict.fromkeys(("forward", "recompute", "backward"), 0)  # on the meta device, where shapes need no kernel
    return {name: 2 * products(each) for name, each in passes.by_name.items()}


def _flops_of(cell: str, tensors: Sequence[Tensor], passes: Sequence[str]) -> int:
    form = BY_KEY.get(cell)
    sizes = sizes_of(Cell.of_key(cell) if form is None else form.cell, tensors)
    per_step = _flops(cell, tuple(sizes.items()), tensors[0].dtype)
    return volume(tensors[0].shape[:3]) * sum(per_step[name] for name in passes)


@register_flop_formula(torch.ops.fastweights.scan, get_raw=True)
def scan_flops(cell: str, tensors: list[Tensor], *placeholders: Any, out_val: Any = None) -> int:
    """Operations of the forward pass."""
    return _flops_of(cell, tensors, ("forward",))


@register_flop_formula(torch.ops.fastweights.scan_backward, get_raw=True)
def scan_backward_flops(cell: str, tensors: list[Tensor], *placeholders: Any, out_val: Any = None) -> int:
    """Operations of the backward pass, which includes the recompute pass."""
    return _flops_of(cell, tensors, ("recompute", "backward"))
