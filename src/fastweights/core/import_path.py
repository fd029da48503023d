"""Where code can be found again, by a user or by another process.

`MODULE:NAME`, `PATH.py:NAME`, or `MODULE:NAME(ARGUMENTS)` for a member of a family. Loading code runs it: what merely
reads a file, such as a run folder or an exported program, takes `find_imported`.
"""

import re
import sys
from ast import literal_eval
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from fastweights.core.errors import InputError, require, require_name
from fastweights.core.family import Family

PARTS = re.compile(r"(?P<home>.+?):(?P<name>[\w.]+)(?P<arguments>\(.*\))?")


def is_address(name: str) -> bool:
    """Whether a name says where code is, rather than what a part of the library is called.

    >>> is_address("my_module:my_rule"), is_address("./rules.py:my_rule"), is_address("delta-net")
    (True, True, False)
    """
    return ":" in name or name.endswith(".py")


def name_at(address: str) -> str:
    """What stands at an address is called so there; a name of the library's is its own.

    >>> name_at("./rules.py:fading(0.9)"), name_at("delta-net")
    ('fading', 'delta-net')
    """
    parts = PARTS.fullmatch(address)
    return parts["name"] if parts else address


def address_of(function: Any) -> str:
    """Where a function can be found; empty if it has no name at the top level of its module.

    >>> address_of(is_address)
    'fastweights.core.import_path:is_address'
    """
    if hasattr(function, "made_by"):
        maker, arguments = function.made_by
        home = address_of(maker)
        return home and f"{home}{arguments!r}"
    home, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    top = vars(sys.modules.get(home, ModuleType("none")))
    if _within(top, name) is function:
        return f"{home}:{name}"
    # A closure that was given a name at the top level of its module.
    return next((f"{home}:{key}" for key, value in top.items() if value is function), "")


def find(address: str) -> Any:
    """What stands at an address; imports its module or runs its file.

    Modules, and what a file imports, are found from the current folder and from the file's, as by `python`.

    Raises:
        InputError: there is no such module, file or name, or the code fails; the message says where.
    """
    return _found(address, _load)


def module_of(address: str) -> ModuleType:
    """The module of an address, `MODULE:...` or `PATH.py:...`; imports the module or runs the file.

    Raises:
        InputError: there is no such module or file, or the code fails; the message says where.
    """
    return _load(address, address.rpartition(":")[0])


def find_imported(address: str) -> Any:
    """The same, but only in the library and in modules that this process has imported: for addresses read from a file.

    Raises:
        InputError: the module is not imported, or has nothing of that name.
    """
    return _found(address, _imported)


def names_in(text: str) -> list[str]:
    """The names in a text with commas between them, such as `delta-net,./rules.py:fading(0.9, 2)`.

    >>> names_in("delta-net, my_module:fading(0.9, 2)")
    ['delta-net', 'my_module:fading(0.9, 2)']
    """
    return [name.strip() for name in re.split(r",(?![^(]*\))", text)]


def absolute(names: str) -> str:
    """The same names, with files that are found from any folder.

    >>> absolute("delta-net,my_module:my_rule")
    'delta-net,my_module:my_rule'
    """
    return ",".join(_absolute(name) for name in names_in(names))


def _absolute(name: str) -> str:
    home, _, rest = name.partition(".py:")
    return f"{Path(home).resolve()}.py:{rest}" if rest else name


def _found(address: str, module_of: Callable[[str, str], ModuleType]) -> Any:
    parts = PARTS.fullmatch(address)
    if parts is None:
        raise InputError(f"address must be MODULE:NAME or PATH.py:NAME, got {address!r}.")
    module = module_of(address, parts["home"])
    found = _within(vars(module), parts["name"])
    if found is None:
        require_name(f"NAME in {address}", parts["name"], (key for key in vars(module) if not key.startswith("_")))
    return found if parts["arguments"] is None else _member(address, found, parts["arguments"])


def _member(address: str, found: Any, arguments: str) -> Any:
    # Nothing but a family is ever called: an address may come from a file.
    require(isinstance(found, Family), address, "a member of a family", f"a {type(found).__name__}", "See `family`.")
    inner = arguments[1:-1].rstrip(", ")
    try:
        values = literal_eval(f"({inner},)") if inner else ()
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InputError(f"{address} must be with plain arguments, got {arguments}.") from None
    return found(*values)


def _within(top: dict[str, Any], name: str) -> Any:
    first, *rest = name.split(".")
    return reduce(lambda value, part: getattr(value, part, None), rest, top.get(first))


def _imported(address: str, home: str) -> ModuleType:
    if home.partition(".")[0] == "fastweights":
        return import_module(home)
    remedy = f"Import {home} first." if not home.endswith(".py") else f"Load it first: Cell.of({address!r})."
    require(home in sys.modules, address, "of a module that is imported", "one that is not", remedy)
    return sys.modules[home]


def _load(address: str, home: str) -> ModuleType:
    try:
        if home.endswith(".py"):
            return _load_file(Path(home))
        _look_in(Path.cwd())
        return import_module(home)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise InputError(f"{address} must be code that can be imported, got {_told(error)}") from error


def _load_file(path: Path) -> ModuleType:
    """The module of a file, under its whole path: no other module has that name."""
    path = path.resolve(strict=True)
    name = str(path)
    if name not in sys.modules:
        _look_in(path.parent)
        spec = spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _look_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _told(error: BaseException) -> str:
    """An error of the user's code, with the line where it was raised."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}."
    lines, frame = [], error.__traceback__
    while frame is not None:
        lines.append(f"{frame.tb_frame.f_code.co_filename}, line {frame.tb_lineno}")
        frame = frame.tb_next
    own = [line for line in lines if not line.startswith(("<", __file__))]
    return f"{type(error).__name__}: {error}{f' ({own[-1]})' if own else ''}."
