"""Replaces derivatives inside a step by a graph, because `torch.export` cannot trace `torch.func.grad` under `vmap`."""

from collections.abc import Callable
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import torch
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.overrides import TorchFunctionMode

from fastweights.cell import Cell, examples
from fastweights.compiler.clean_thread import run_in_clean_thread
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.frontend.trace import trace_step

Sizes = tuple[tuple[str, int], ...]
STEPS = SimpleNamespace()
"""The graphs by name. A traced program cannot hold a graph as the result of a function, but it can read it here."""


def without_derivatives(cell: Cell, sizes: Sizes, dtype: torch.dtype) -> Callable[..., Any]:
    """The step of a cell. A step that calls `torch.func.grad`, `vjp` or `jvp` becomes a graph of their operations."""
    name = name_of_step(cell.key, sizes, dtype)
    return getattr(STEPS, name) if name else cell.step


def name_of_step(key: str, sizes: Sizes, dtype: torch.dtype) -> str:
    """Stores the graph of a step in `STEPS` and returns its name; an empty name if the step needs or has no graph."""
    cell = Cell.of_key(key)
    try:
        graph = run_in_clean_thread(_graph, cell, dict(sizes), dtype)
    except Unsupported:  # the step itself is traced instead, whose error is the user's
        return ""
    if graph is None:
        return ""
    name = f"step_{sha256(repr((key, sizes, dtype)).encode()).hexdigest()}"
    setattr(STEPS, name, _as_step(cell, graph))
    return name


# As by torch.compiler.assume_constant_result, whose import would take seconds: a trace calls it and keeps the answer.
name_of_step._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _graph(cell: Cell, sizes: dict[str, int], dtype: torch.dtype) -> torch.fx.GraphModule | None:
    arguments = examples(cell, sizes, dtype)
    with Derivatives() as derivatives, torch.random.fork_rng(devices=[]):
        cell.step(*arguments)
    if not derivatives.are_taken:
        return None
    graph = trace_step(cell, sizes, dtype)
    # A parameter must stay a parameter of the program: in a graph it would be a constant.
    learns = any(x.requires_grad for x in [*graph.parameters(), *graph.buffers()])
    return None if learns else graph


def _as_step(cell: Cell, graph: torch.fx.GraphModule) -> Callable[..., Any]:
    def step(*records: Any) -> Any:
        *state, y = graph(*(x for record in records for x in record))
        return cell.State(*state), y

    return step


class Derivatives(TorchFunctionMode):
    """Records whether the functions called while it is active take derivatives."""

    def __init__(self) -> None:
        super().__init__()
        self.are_taken = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kinds = (level.key() for level in get_interpreter_stack() or ())
        self.are_taken |= any(kind in (TransformType.Grad, TransformType.Jvp) for kind in kinds)
        return func(*args, **(kwargs or {}))
