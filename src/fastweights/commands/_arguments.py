"""Arguments that several commands share."""

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from fastweights.core.errors import InputError, require

CELL = "a name from 'fastweights list cells', or an import path MODULE:NAME or PATH.py:NAME"


def folder(name: str) -> Path:
    """Converts an argument to a path. An empty one, as from an unset variable, raises an error."""
    if not name:
        raise argparse.ArgumentTypeError("must be the name of a folder, got an empty one")
    return Path(name)


def add_run(command: argparse.ArgumentParser) -> None:
    """Adds a run folder, and the import path of its layer."""
    command.add_argument("folder", type=folder, metavar="RUN", help="a run folder")
    command.add_argument("--layer", help="import path of the custom layer of the run, whose code is executed")


def add_env(command: argparse.ArgumentParser) -> None:
    """Adds the import path of the environment."""
    custom = "import path MODULE:NAME or PATH.py:NAME of the custom environment of the run, whose code is executed"
    command.add_argument("--env", help=custom)


def cell_of(name: str) -> Any:
    """Returns the cell of an argument `CELL`."""
    from fastweights.cell import Cell

    return Cell.from_function(name)


def device_of(name: str) -> str:
    """Checks that a device is available; returns its name."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device must be available, got {name!r}: {error}") from None
    return name


def sizes_of(arguments: Sequence[str], axes: Collection[str]) -> dict[str, int]:
    """Parses sizes by axis, such as `K=64`."""
    pairs = [text.partition("=") for text in arguments]
    for axis, _, size in pairs:
        fits = axis in axes and size.isdecimal() and 0 < int(size) <= 4096
        require(fits, "size", f"AXIS=N for an axis of {', '.join(axes)}, N from 1 to 4096", f"{axis}={size}")
    return {axis: int(size) for axis, _, size in pairs}
