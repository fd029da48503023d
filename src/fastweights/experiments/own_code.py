"""The user's own code in runs: it is run where the user says, never because a file says so."""

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fastweights.address import absolute, is_address, name_at, names_in
from fastweights.errors import require


def confirm(stored: str, given: Any, folder: Path) -> Any:
    """The layer to build for a run.

    A run folder may come from anybody. If its layer is code, `MODULE:NAME` or `PATH.py:NAME`, the user must say where
    that code is; it may have moved, but is still called NAME. In Python the user can also give the layer itself.

    Raises:
        InputError: the run has a layer of its own that nobody named, or another one.
    """
    if not any(map(is_address, names_in(stored))):
        require(given in (None, stored), "layer", f"{stored!r} as in {folder}, or left out", repr(given))
        return stored
    wanted = f"named by you, since the run in {folder} has code of somebody's own, {stored!r}"
    require(
        given is not None,
        "layer",
        wanted,
        "nothing",
        f"If you trust that code, add --layer {stored} (in Python, layer=).",
    )
    if not isinstance(given, str):
        return given
    given = absolute(given)
    pairs = zip_longest(map(name_at, names_in(stored)), map(name_at, names_in(given)))
    require(all(one == other for one, other in pairs), "layer", f"{stored!r} as in {folder}", repr(given))
    return given


def confirm_all(stored: Mapping[str, Any], layer: Any, folder: Path) -> dict[str, Any]:
    """The flags of a run as its folder gives them: the layer as the user says, and no other name that is code.

    A string is a name; a `Path` is a file with data, which is read and not run.
    """
    for flag, value in stored.items():
        code = flag != "layer" and isinstance(value, str) and any(map(is_address, names_in(value)))
        require(not code, f"{flag} in {folder}", "a name of the library's", repr(value))
    return {**stored, "layer": confirm(stored["layer"], layer, folder)} if "layer" in stored else dict(stored)
