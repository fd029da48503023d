"""Builds C++ with the compiler of the system, and keeps what it built in a cache that many processes may share."""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from ctypes import CDLL
from functools import cache
from pathlib import Path

import torch

from fastweights.compiler.unsupported import Unbuilt

NAMES = ("c++", "g++", "clang++")
FLAGS = ("-std=gnu++20", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", "-w")
VISIBILITY = ("-fvisibility=hidden", "-fopenmp")
REMEDY = "Install one (apt install g++, xcode-select --install), or name it in $CXX."


def compiler() -> str:
    """The path of the compiler: `$CXX`, else the first of `c++`, `g++` and `clang++` that is installed; else empty."""
    named = os.environ.get("CXX")
    return next((path for name in ([named] if named else NAMES) if (path := shutil.which(name))), "")


def folder() -> Path:
    """Where kernels are kept: `$FASTWEIGHTS_CACHE`, else `fastweights` in the user's cache folder."""
    given = os.environ.get("FASTWEIGHTS_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(home) / "fastweights"


def lanes(dtype: torch.dtype) -> int:
    """How many numbers a vector of this CPU holds."""
    flags = cpu().split()
    width = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    return width // dtype.itemsize


@cache
def cpu() -> str:
    """Model and abilities of this CPU: a kernel built for another one must not be loaded."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        return " ".join(line.partition(":")[2].strip() for line in lines if line.startswith(wanted))
    return f"{platform.machine()} {platform.processor()}"


def build(source: str, name: str) -> CDLL:
    """The library that `source` compiles to: from the cache, or built now.

    Another process that builds the same thing does so in a file of its own, and the last one to rename it wins; so a
    build that is killed leaves nothing that is ever loaded.

    Raises:
        Unbuilt: there is no compiler, or it fails.
    """
    key = hashlib.sha256("\0".join([source, cpu(), version(compiler()), *FLAGS, *openmp()]).encode()).hexdigest()[:24]
    return load(f"{name}-{key}") or _built(source, f"{name}-{key}")


def load(stem: str) -> CDLL | None:
    """A library of the cache; None if it is not there, or damaged."""
    path = folder() / f"{stem}.so"
    try:
        intact = path.read_bytes().endswith(SEAL) if path.exists() else False
        return CDLL(str(path)) if intact else None
    except OSError:
        return None


SEAL = b"fastweights\n"
"""The last bytes of every library: one that was cut short does not have them, and loading it could crash."""


def _built(source: str, stem: str) -> CDLL:
    for place in _places():
        try:
            return _build_in(place, source, stem)
        except OSError:
            continue
    raise Unbuilt("no folder can be written to for compiled kernels; set $FASTWEIGHTS_CACHE to one that can.")


def _places() -> Iterator[Path]:
    """The cache, and a temporary folder if that is read-only or full."""
    yield folder()
    yield Path(_temporary().name)


@cache
def _temporary() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="fastweights-", ignore_cleanup_errors=True)


def _build_in(place: Path, source: str, stem: str) -> CDLL:
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=place, ignore_cleanup_errors=True) as scratch:
        code, library = Path(scratch, f"{stem}.cpp"), Path(scratch, f"{stem}.so")
        code.write_text(source, encoding="utf-8")
        _compile(code, library)
        with library.open("ab") as file:
            file.write(SEAL)
        code.replace(place / code.name)
        library.replace(place / library.name)
    return CDLL(str(place / library.name))


def _compile(code: Path, library: Path) -> None:
    path = compiler()
    if not path:
        raise Unbuilt(f"there is no C++ compiler. {REMEDY}")
    command = [path, *FLAGS, *openmp(), str(code), "-o", str(library), *_runtime()]
    try:
        result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise Unbuilt(f"the compiler {path} does not run ({error.strerror}). {REMEDY}") from error
    if result.returncode and "No space left" in result.stderr:
        raise OSError(result.stderr)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if "error" in line] or result.stderr.splitlines() or [""]
        raise Unbuilt(f"the compiler {path} fails: {lines[0].strip()[:300]}. {REMEDY}")


@cache
def openmp() -> tuple[str, ...]:
    """The flags that are not for every compiler."""
    return VISIBILITY


def _runtime() -> list[str]:
    """The OpenMP library that torch has loaded, so that both share their threads."""
    return [str(path) for path in sorted(Path(torch.__file__).parent.glob("lib/libgomp*"))[:1]]


@cache
def version(path: str) -> str:
    """What the compiler says that it is."""
    if not path:
        return ""
    with suppress(OSError):
        result = subprocess.run([path, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return f"{path} {result.stdout}"
    return path
