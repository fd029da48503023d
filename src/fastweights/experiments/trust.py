"""The user's own code in runs: it is run where the user says, never because a file says so."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from fastweights.core.errors import require
from fastweights.core.import_path import absolute, is_address, name_at, names_in


class Own(NamedTuple):
    """The code of a run as the user names it; None for what the user does not name."""

    layer: Any = None
    env: str | None = None


NOTHING = Own()


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
    wanted = f"named by you, since the run in {folder} has code of a user, {stored!r}"
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


def confirm_env(stored: str, given: str | None, folder: Path) -> str:
    """The environment to make for a run; its code, `MODULE:NAME` or `PATH.py:NAME`, must be named by the user.

    The code may have moved, but is still called NAME. For an ID without code, the user may name the code that registers
    it.

    Raises:
        InputError: The environment is code that the user did not name, or has another name.
    """
    if given is None:
        wanted = f"named by you, since the run in {folder} has code of a user, {stored!r}"
        remedy = f"If you trust that code, add --env {stored} (in Python, env=)."
        require(not is_address(stored), "env", wanted, "nothing", remedy)
        return stored
    same = given.rpartition(":")[2] == stored.rpartition(":")[2]
    require(same, "env", f"{stored!r} as in {folder}, wherever its code is", repr(given))
    return absolute(given)


def confirm_all(stored: Mapping[str, Any], own: Own, folder: Path) -> dict[str, Any]:
    """The options of a run as its folder gives them: layer and environment as the user names them, and no other code.

    A string is a name; a `Path` is a file with data, which is read and not run.
    """
    require_names({name: value for name, value in stored.items() if name not in Own._fields}, folder)
    confirmed = dict(stored)
    if "layer" in stored:
        confirmed["layer"] = confirm(stored["layer"], own.layer, folder)
    if "env" in stored:
        confirmed["env"] = confirm_env(stored["env"], own.env, folder)
    return confirmed


def require_names(options: Mapping[str, Any], folder: Path) -> None:
    """`InputError` if an option, or one inside of it, is a string that names code."""
    for name, value in options.items():
        for text in _strings(value):
            code = any(map(is_address, names_in(text)))
            require(not code, f"{name} in {folder}", "a name of the library's", repr(text))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
