"""Finds the C++ compiler of this machine."""

import os
import shlex
import shutil
from importlib.util import find_spec

NAMES = ("c++", "g++", "clang++")
PACKAGE = "ziglang"
REMEDY = (
    "Install one (pip install 'fastweights[compiler]', apt install g++, or xcode-select --install), or name it in $CXX."
)


def compiler() -> list[str]:
    """The command of the compiler: `$CXX`, else the first of `c++`, `g++` and `clang++` that is installed, else that of
    the Python package `ziglang`; else []."""
    named = _named()
    for command in map(_words, [named] if named else NAMES):
        path = shutil.which(command[0]) if command else None
        if path:
            return [path, *command[1:]]
    return [] if named else _packaged()


def absence() -> str:
    """A message that no compiler was found, with a remedy; empty if there is one."""
    named = _named()
    absent = f"there is no C++ compiler{f' {named!r}, which $CXX names' if named else ''}. {REMEDY}"
    return "" if compiler() else absent


def identity() -> list[str]:
    """The identity of a compiler, which changes with its version: its file and its arguments."""
    command = compiler()
    if not command:
        return []
    status = os.stat(command[0])
    return [os.path.realpath(command[0]), str(status.st_mtime_ns), str(status.st_size), *command[1:]]


def _named() -> str:
    return os.environ.get("CXX", "").strip()


def _words(command: str) -> list[str]:
    """The words of a command, as the shell splits it; none where a quotation does not end."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _packaged() -> list[str]:
    """The program that `python -m ziglang c++` runs. Kernels need no standard library of C++: to build that one would
    take the first call a minute."""
    spec = find_spec(PACKAGE)
    folders = (spec.submodule_search_locations or []) if spec else []
    path = next(filter(None, (shutil.which("zig", path=folder) for folder in folders)), None)
    return [path, "c++", "-nostdlib++", "-fno-exceptions"] if path else []
