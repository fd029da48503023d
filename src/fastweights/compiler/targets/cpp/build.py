"""Builds libraries of C++, and keeps them in a cache that many processes may share.

The cache has two levels. A library is named after the digest of its C++ code. A record, named after a cell's step and
the code of this compiler, holds the digest of the C++ code that the compiler emitted. With a record a process finds its
library without emitting C++. A change of the compiler invalidates records, but libraries only if their C++ changes.
"""

import hashlib
import re
from contextlib import suppress
from ctypes import CDLL
from pathlib import Path

import torch

from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.targets.cache import digest, is_trusted, kernel_cache_folder, write_private
from fastweights.compiler.targets.cpp.attempt import loaded
from fastweights.compiler.targets.cpp.cache_folder import in_some_place
from fastweights.compiler.targets.cpp.compiler import compiler, identity
from fastweights.compiler.targets.cpp.cpu import cpu
from fastweights.compiler.targets.cpp.flags import BEST
from fastweights.compiler.targets.cpp.scratch import SEAL, scratch
from fastweights.compiler.targets.cpp.toolchain import Toolchain, toolchain

COMMENT = re.compile(r"\s*//.*")
DIGEST = re.compile(r"[0-9a-f]{24}")


def record(name: str, *parts: str) -> str:
    """The file name of the record of a step, which `parts` describe, on this CPU."""
    return f"{name}-{digest(*parts, cpu(), torch.__version__)}.record"


def load_recorded(name: str, record: str) -> CDLL | None:
    """The library of a step that has a record; None if the record or the library is missing."""
    code = _read_record(record)
    return load(stem(name, code)) if code else None


def load_or_build(name: str, source: str, record: str) -> CDLL:
    """The library of a source, from the cache or built, and a record of it for later processes.

    Raises:
        Unbuilt: there is no compiler, it fails, or its library does not load.
    """
    code = source_digest(source)
    library = load(stem(name, code)) or build(source, stem(name, code))
    place = kernel_cache_folder()
    if place is not None:
        with suppress(OSError):  # a cache that is read-only or full
            write_private(place / record, code.encode())
    return library


def source_digest(source: str) -> str:
    """The digest of C++ code without its comments, which name lines of the cell's file."""
    return digest(COMMENT.sub("", source))


def stem(name: str, code: str) -> str:
    """The name of a library in the cache, without its suffix. The compiler's digest follows the last hyphen.

    Args:
        name: Name of the cell and of the library's function.
        code: Digest of the C++ code.
    """
    which = identity()
    return f"{name}-{digest(code, cpu(), torch.__version__, *BEST)}-{digest(*which)[:8] if which else ''}"


def load(stem: str) -> CDLL | None:
    """A library of the cache; None if it is not there, damaged, or not ours."""
    place = kernel_cache_folder()
    if place is None:
        return None
    # Without a compiler, a library of any other compiler is used, as in an image with prebuilt kernels.
    paths = [place / f"{stem}.so"] if compiler() else sorted(place.glob(f"{stem}*.so"))
    return next(filter(None, map(_load, paths)), None)


def _read_record(name: str) -> str:
    """The digest of C++ code in a record; empty if there is no valid record of this user."""
    place = kernel_cache_folder()
    with suppress(OSError, UnicodeDecodeError):
        if place is not None and is_trusted(place / name):
            code = (place / name).read_text(encoding="utf-8")
            return code if DIGEST.fullmatch(code) else ""
    return ""


def _load(path: Path) -> CDLL | None:
    try:
        content = path.read_bytes() if is_trusted(path) else b""
        return CDLL(str(path)) if content[-len(SEAL) - 32 :] == _seal(content[: -len(SEAL) - 32]) else None
    except OSError:
        return None


def build(source: str, stem: str) -> CDLL:
    """Builds the library of a source and puts it into the cache; if that is read-only or full, into a temporary folder.

    Every process builds in a folder of its own and renames the result: the last one wins, and a build that is killed
    leaves nothing that is ever loaded.

    Raises:
        Unbuilt: there is no compiler, it fails, or what it builds does not load.
    """
    tools = toolchain()
    try:
        return in_some_place(lambda place: _build_in(place, tools, source, stem))
    except Unbuilt:
        # Something may have changed since the compiler was tried, such as a library that has gone.
        again = toolchain(renew=True)
        if again == tools:
            raise
        return in_some_place(lambda place: _build_in(place, again, source, stem))


def _seal(content: bytes) -> bytes:
    """The seal at the end of every library. A truncated or changed library could crash the process that loads it."""
    return SEAL + hashlib.sha256(content).digest()


def _build_in(place: Path, tools: Toolchain, source: str, stem: str) -> CDLL:
    with scratch(place) as folder:
        code, library = folder / f"{stem}.cpp", folder / f"{stem}.so"
        code.write_text(source, encoding="utf-8")
        tools.build(code, library)
        content = library.read_bytes()
        library.write_bytes(content + _seal(content))
        library.chmod(0o700)
        made = loaded(library, tools.command[0])
        code.replace(place / code.name)
        library.replace(place / library.name)
    return made
