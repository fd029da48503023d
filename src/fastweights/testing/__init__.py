"""Correctness checks of the library, which also run on rules and cells of users.

`fastweights check my_module:my_cell` runs `run_checks`.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from fastweights.cell import Cell
from fastweights.core.errors import InputError
from fastweights.dispatch import explain
from fastweights.registry import BACKENDS
from fastweights.tasks import Task
from fastweights.testing import layer_checks, scan_checks

__all__ = ["backends_of", "checks_in", "layer_checks", "problem", "run_checks", "task_checks"]


def checks_in(module: ModuleType) -> dict[str, Callable[..., None]]:
    """All checks of a module, by name: `check_is_causal` is "is_causal"."""
    return {name.removeprefix("check_"): f for name, f in vars(module).items() if name.startswith("check_")}


def task_checks(kind: type[Task]) -> ModuleType:
    """The checks of the kind of a task: `testing/stream_checks.py` for tasks of `tasks/kinds/stream.py`."""
    return import_module(f"fastweights.testing.{kind.kind()}_checks")


def backends_of(cell: Cell) -> list[str]:
    """The backends that can run a cell on this machine; builds the kernel that most checks use."""
    a = scan_checks.arguments(cell, scan_checks.ODD)
    refusals = explain(cell, a.inputs, a.state, a.params).reasons
    return [name for name in BACKENDS.names() if not refusals[name].startswith("cannot")]


def run_checks(cell: Cell, device: str = "cpu") -> Iterator[tuple[str, str]]:
    """Runs every check on every backend of a device; yields its name and the problem, empty if there is none.

    A cell that violates its signature fails only that check, since all others would report the same.
    """
    broken = problem(device, backends_of, cell)
    yield "keeps its signature", broken
    for backend in [] if broken else _on(device, backends_of, cell):
        for name, check in checks_in(scan_checks).items():
            yield f"{backend}: {name}", problem(device, check, cell, backend)


def _on(device: str, function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function with new tensors on a device."""
    # Such a region intercepts every call of torch, which takes time.
    with torch.device(device) if device != "cpu" else nullcontext():
        return function(*args)


def problem(device: str, check: Callable[..., object], *args: Any) -> str:
    """Runs a check on a device; returns the problem in one line, empty if there is none."""
    try:
        _on(device, check, *args)
    except InputError as error:
        return str(error)
    except Exception as error:  # a check may raise any error of the cell
        message = str(error).partition("\n")[0]
        return message if isinstance(error, AssertionError) else f"{type(error).__name__}: {message}"
    return ""
