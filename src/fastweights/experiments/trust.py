"""Custom code in runs, which is executed only if the user names it, never because a file does."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from fastweights.core.errors import require
from fastweights.core.import_path import absolute, is_address, name_at, names_in


class TrustedCode(NamedTuple):
    """Import paths or objects of the custom code of a run, as named by the user; None if not named."""

    layer: Any = None
    env: str | None = None


NOTHING = TrustedCode()


def confirm(stored: str, named: Any, folder: Path) -> Any:
    """Returns the layer to build for a run.

    A run folder may come from an untrusted source. If its layer is code, `MODULE:NAME` or `PATH.py:NAME`, the user must
    name that code. It may have moved, but must have the same NAME. In Python the user can also pass the layer itself.

    Raises:
        InputError: the run has a custom layer that the user did not name, or another one.
    """
    if not any(map(is_address, names_in(stored))):
        require(named in (None, stored), "layer", f"{stored!r} as in {folder}, or left out", repr(named))
        return stored
    requirement = f"named by you, since the run in {folder} has code of a user, {stored!r}"
    require(
        named is not None,
        "layer",
        requirement,
        "nothing",
        f"If you trust that code, add --layer {stored} (in Python, layer=).",
    )
    if not isinstance(named, str):
        return named
    named = absolute(named)
    pairs = zip_longest(map(name_at, names_in(stored)), map(name_at, names_in(named)))
    require(all(one == other for one, other in pairs), "layer", f"{stored!r} as in {folder}", repr(named))
    return named


def confirm_env(stored: str, named: str | None, folder: Path) -> str:
    """Returns the environment for a run. Its code, `MODULE:NAME` or `PATH.py:NAME`, must be named by the user.

    The code may have moved, but is still called NAME. For an ID without code, the user may name the code that registers
    it.

    Raises:
        InputError: The environment is code that the user did not name, or has another name.
    """
    if named is None:
        requirement = f"named by you, since the run in {folder} has code of a user, {stored!r}"
        remedy = f"If you trust that code, add --env {stored} (in Python, env=)."
        require(not is_address(stored), "env", requirement, "nothing", remedy)
        return stored
    same = named.rpartition(":")[2] == stored.rpartition(":")[2]
    require(same, "env", f"{stored!r} as in {folder}, wherever its code is", repr(named))
    return absolute(named)


def confirm_all(stored: Mapping[str, Any], own: TrustedCode, folder: Path) -> dict[str, Any]:
    """Checks the options of a run: layer and environment as named by the user, and no other code.

    A string is a name; a `Path` is a file with data, which is read and not run.
    """
    require_names({name: value for name, value in stored.items() if name not in TrustedCode._fields}, folder)
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
            require(not code, f"{name} in {folder}", "a name of the library", repr(text))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
