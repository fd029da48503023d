"""Arguments that several commands take."""

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from fastweights.core.errors import InputError, require

CELL = "a name from 'fastweights list cells', or MODULE:NAME or PATH.py:NAME of your own"


def folder(name: str) -> Path:
    """A path; a variable that is not set names none, not the current folder."""
    if not name:
        raise argparse.ArgumentTypeError("must be the name of a folder, got an empty one")
    return Path(name)


def add_run(command: argparse.ArgumentParser) -> None:
    """A run folder, and where the code of its layer is."""
    command.add_argument("folder", type=folder, metavar="RUN", help="a run folder")
    command.add_argument("--layer", help="where your own layer is, for a run that has one: its code is run")


def add_env(command: argparse.ArgumentParser) -> None:
    """The address of the code of the environment."""
    own = "MODULE:NAME or PATH.py:NAME of your own environment, for the run of an agent that has one: its code is run"
    command.add_argument("--env", help=own)


def cell_of(name: str) -> Any:
    """The cell that is meant by `CELL`."""
    from fastweights.cell import Cell

    return Cell.of(name)


def device_of(name: str) -> str:
    """A device that is here, as torch names it."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device must be one that is here, got {name!r}: {error}") from None
    return name


def sizes_of(given: Sequence[str], axes: Collection[str]) -> dict[str, int]:
    """Sizes by axis, from `K=64` and the like."""
    pairs = [text.partition("=") for text in given]
    for axis, _, size in pairs:
        fits = axis in axes and size.isdecimal() and 0 < int(size) <= 4096
        require(fits, "size", f"AXIS=N for an axis of {', '.join(axes)}, N from 1 to 4096", f"{axis}={size}")
    return {axis: int(size) for axis, _, size in pairs}
