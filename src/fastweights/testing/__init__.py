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
    """Lists the checks of a module.

    Args:
        module: Module with functions `check_NAME`.

    Returns:
        The functions by name, without "check_".
    """
    return {name.removeprefix("check_"): f for name, f in vars(module).items() if name.startswith("check_")}


def task_checks(kind: type[Task]) -> ModuleType:
    """Returns the module with the checks for a kind of task.

    Args:
        kind: Task class.

    Returns:
        The module, such as `testing/stream_checks.py` for tasks of `tasks/kinds/stream.py`.
    """
    return import_module(f"fastweights.testing.{kind.kind()}_checks")


def backends_of(cell: Cell) -> list[str]:
    """Lists the backends that can run a cell on this machine. It builds the kernel that most checks use.

    Args:
        cell: Cell.

    Returns:
        The names of the backends.
    """
    a = scan_checks.arguments(cell, scan_checks.ODD)
    refusals = explain(cell, a.inputs, a.state, a.params).reasons
    return [name for name in BACKENDS.names() if not refusals[name].startswith("cannot")]


def run_checks(cell: Cell, device: str = "cpu") -> Iterator[tuple[str, str]]:
    """Runs every check on every backend of a device.

    A cell that violates its signature fails only that check, since all others would report the same.

    Args:
        cell: Cell.
        device: Device that the checks run on.

    Yields:
        The name of a check, and the problem in one line, empty if there is none.
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
    """Runs a check and reports the problem.

    Args:
        device: Device that the check runs on.
        check: Check, which raises an error if it fails.
        args: Arguments of the check.

    Returns:
        The problem in one line, empty if there is none.
    """
    try:
        _on(device, check, *args)
    except InputError as error:
        return str(error)
    except Exception as error:  # a check may raise any error of the cell
        message = str(error).partition("\n")[0]
        return message if isinstance(error, AssertionError) else f"{type(error).__name__}: {message}"
    return ""
