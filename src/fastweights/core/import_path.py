"""Import paths: names under which a user or another process can find code.

A path is `MODULE:NAME`, `PATH.py:NAME`, or `MODULE:NAME(ARGUMENTS)` for a member of a family. Loading code runs it.
Functions that only read a file, such as a run folder or an exported program, use `find_imported`.
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

PARTS = re.compile(r"(?P<origin>.+?):(?P<name>[\w.]+)(?P<arguments>\(.*\))?")


def is_address(name: str) -> bool:
    """Whether a name is an import path, rather than the name of a part of the library.

    >>> (
    ...     is_address("my_module:my_rule"),
    ...     is_address("./rules.py:my_rule"),
    ...     is_address("delta-net"),
    ... )
    (True, True, False)
    """
    return ":" in name or name.endswith(".py")


def name_at(address: str) -> str:
    """The last part of an import path; a name of the library is returned unchanged.

    >>> name_at("./rules.py:fading(0.9)"), name_at("delta-net")
    ('fading', 'delta-net')
    """
    parts = PARTS.fullmatch(address)
    return parts["name"] if parts else address


def address_of(function: Any) -> str:
    """The import path of a function; empty if it has no name at the top level of its module.

    >>> address_of(is_address)
    'fastweights.core.import_path:is_address'
    """
    if hasattr(function, "made_by"):
        maker, arguments = function.made_by
        origin = address_of(maker)
        return origin and f"{origin}{arguments!r}"
    origin, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    top = vars(sys.modules.get(origin, ModuleType("none")))
    if _within(top, name) is function:
        return f"{origin}:{name}"
    # A closure that was given a name at the top level of its module.
    return next((f"{origin}:{key}" for key, value in top.items() if value is function), "")


def find(address: str) -> Any:
    """Returns the object at an import path. Imports its module or runs its file.

    Modules, and the imports of a file, are searched in the current folder and in the folder of the file, as by
    `python`.

    Raises:
        InputError: there is no such module, file or name, or the code fails; the message has the line.
    """
    return _resolve(address, _load)


def module_of(address: str) -> ModuleType:
    """Returns the module of an import path, `MODULE:...` or `PATH.py:...`. Imports the module or runs the file.

    Raises:
        InputError: there is no such module or file, or the code fails; the message has the line.
    """
    return _load(address, address.rpartition(":")[0])


def find_imported(address: str) -> Any:
    """Like `find`, but only in the library and in modules that this process has imported: for paths read from a file.

    Raises:
        InputError: the module is not imported, or has nothing of that name.
    """
    return _resolve(address, _imported)


def names_in(text: str) -> list[str]:
    """Splits names that are separated by commas, such as `delta-net,./rules.py:fading(0.9, 2)`.

    >>> names_in("delta-net, my_module:fading(0.9, 2)")
    ['delta-net', 'my_module:fading(0.9, 2)']
    """
    return [name.strip() for name in re.split(r",(?![^(]*\))", text)]


def absolute(names: str) -> str:
    """The same names, with absolute paths of files.

    >>> absolute("delta-net,my_module:my_rule")
    'delta-net,my_module:my_rule'
    """
    return ",".join(_absolute(name) for name in names_in(names))


def _absolute(name: str) -> str:
    origin, _, rest = name.partition(".py:")
    return f"{Path(origin).resolve()}.py:{rest}" if rest else name


def _resolve(address: str, module_of: Callable[[str, str], ModuleType]) -> Any:
    parts = PARTS.fullmatch(address)
    if parts is None:
        raise InputError(f"address must be MODULE:NAME or PATH.py:NAME, got {address!r}.")
    module = module_of(address, parts["origin"])
    member = _within(vars(module), parts["name"])
    if member is None:
        require_name(f"NAME in {address}", parts["name"], (key for key in vars(module) if not key.startswith("_")))
    return member if parts["arguments"] is None else _member(address, member, parts["arguments"])


def _member(address: str, maker: Any, arguments: str) -> Any:
    # Only families are called, since an import path may come from a file.
    require(isinstance(maker, Family), address, "a member of a family", f"a {type(maker).__name__}", "See `family`.")
    inner = arguments[1:-1].rstrip(", ")
    try:
        values = literal_eval(f"({inner},)") if inner else ()
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InputError(f"{address} must be a call with plain arguments, got {arguments}.") from None
    return maker(*values)


def _within(top: dict[str, Any], name: str) -> Any:
    first, *rest = name.split(".")
    return reduce(lambda value, part: getattr(value, part, None), rest, top.get(first))


def _imported(address: str, origin: str) -> ModuleType:
    if origin.partition(".")[0] == "fastweights":
        return import_module(origin)
    remedy = (
        f"Import {origin} first." if not origin.endswith(".py") else f"Load it first: Cell.from_function({address!r})."
    )
    require(origin in sys.modules, address, "a name in an imported module", "another module", remedy)
    return sys.modules[origin]


def _load(address: str, origin: str) -> ModuleType:
    try:
        if origin.endswith(".py"):
            return _load_file(Path(origin))
        _search_in(Path.cwd())
        return import_module(origin)
    except (Exception, SystemExit) as error:  # any error of the user's code
        raise InputError(f"{address} must be code that can be imported, got {_describe_error(error)}") from error


def _load_file(path: Path) -> ModuleType:
    """Loads a file as a module that is named after its absolute path, which no other module has."""
    path = path.resolve(strict=True)
    name = str(path)
    if name not in sys.modules:
        _search_in(path.parent)
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


def _search_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _describe_error(error: BaseException) -> str:
    """Describes an error of the user's code, with the line where it was raised."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}."
    lines, frame = [], error.__traceback__
    while frame is not None:
        lines.append(f"{frame.tb_frame.f_code.co_filename}, line {frame.tb_lineno}")
        frame = frame.tb_next
    user_lines = [line for line in lines if not line.startswith(("<", __file__))]
    return f"{type(error).__name__}: {error}{f' ({user_lines[-1]})' if user_lines else ''}."
