"""Arguments that several commands share."""

import argparse
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from fastweights.core.errors import InputError, did_you_mean, invalid, require
from fastweights.core.import_path import is_address
from fastweights.registry import hyphens, names

CELL = "Cell: a name from 'fastweights list cells', or an import path MODULE:NAME or PATH.py:NAME."

COMMANDS_BY_MODEL = {
    "language model": "generate",
    "translator": "translate",
    "agent": "render",
    "sequence classifier": "classify",
    "few shot network": "classify",
}
"""Commands that use a trained model, by its kind."""


def path(name: str) -> Path:
    """Converts an argument to a path. An empty one, as from an unset variable, raises an error."""
    if not name:
        raise argparse.ArgumentTypeError("must be a path, got an empty one")
    return Path(name)


def add_run(command: argparse.ArgumentParser) -> None:
    """Adds a run folder, and the import path of its layer."""
    command.add_argument("folder", type=path, metavar="RUN", help="Run folder of 'fastweights train' or 'reproduce'.")
    layer = "Import path MODULE:NAME or PATH.py:NAME of the custom layer of the run. Its code is executed."
    command.add_argument("--layer", metavar="NAME", help=layer)


def add_env(command: argparse.ArgumentParser) -> None:
    """Adds the import path of the environment."""
    env = "Import path MODULE:NAME or PATH.py:NAME of the custom environment of the run. Its code is executed."
    command.add_argument("--env", metavar="NAME", help=env)


def add_output(command: argparse.ArgumentParser, default: Path) -> None:
    """Adds the path of an HTML page."""
    command.add_argument("--output", type=path, default=default, metavar="FILE", help="Path of the HTML page.")


def cell_of(name: str) -> Any:
    """Returns the cell of an argument `CELL`. A path, such as that of a run folder, raises an error."""
    from fastweights.cell import Cell

    is_path = len(Path(name).parts) > 1 and not is_address(name)
    require(not is_path, "cell", "a name or an import path", f"the path {name}", "See fastweights list cells.")
    return Cell.from_function(name)


def require_cell_or_layer(name: str) -> None:
    """Raises unless an argument `RUN|CELL` that is no folder is the name or the import path of a cell or a layer."""
    known = {*names("cells"), *names("layers")}
    if is_address(name) or hyphens(name) in known:
        return
    remedy = "Check the path, train a run with fastweights train, or see fastweights list cells."
    remedy = f"{did_you_mean(name, known)} {remedy}".lstrip()
    raise invalid("RUN|CELL", "an existing run folder, a cell or a layer", repr(name), remedy)


def device_of(name: str) -> str:
    """Checks that a device is available; returns its name."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device must be available, got {name!r}: {error}") from None
    return name


def sizes_of(arguments: Sequence[str], axes: Collection[str], most: int = 4096) -> dict[str, int]:
    """Parses sizes by axis, such as `K=64`."""
    pairs = [text.partition("=") for text in arguments]
    for axis, _, size in pairs:
        fits = axis in axes and size.isdecimal() and 0 < int(size) <= most
        require(fits, "size", f"AXIS=N for an axis of {', '.join(axes)}, N from 1 to {most}", f"{axis}={size}")
    return {axis: int(size) for axis, _, size in pairs}


def kind_of(model: Any) -> str:
    """The kind of a model in words, such as "language model", from its class."""
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", type(model).__name__).lower()


def require_kind(holds: bool, run: Path, kind: str, requirement: str) -> None:
    """Raises unless `holds`, and names the command for a run of this kind.

    Args:
        holds: Whether the command can use the model.
        run: The run folder.
        kind: The kind of its model, such as "translator".
        requirement: The kind that the command needs, with its article.
    """
    if not holds:
        article = "an" if kind[0] in "aeiou" else "a"
        use = f"Use fastweights {COMMANDS_BY_MODEL[kind]}." if kind in COMMANDS_BY_MODEL else ""
        raise invalid("run", f"a run of {requirement}", f"{run}, a run of {article} {kind}", use)
