"""Builds C++ with the compiler of the system, and keeps what it built in a cache that many processes may share."""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from ctypes import CDLL
from functools import cache
from pathlib import Path

import torch

from fastweights.compiler.cache import is_trusted, kept, places
from fastweights.compiler.unsupported import Unbuilt

NAMES = ("c++", "g++", "clang++")
# No -ffast-math: NaN and infinity must come through. What it would allow that is safe, the code does by itself. Loops
# come in blocks already: to unroll more of them takes the compiler twice the time for code that is no faster.
FLAGS = (
    *("-std=gnu++20", "-O3", "--param=max-completely-peeled-insns=50", "-fno-gcse-after-reload"),
    *("-march=native", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"),
    *("-fPIC", "-shared", "-w"),
)
THREADS = "-fopenmp"
REMEDY = "Install one (apt install g++, xcode-select --install), or name it in $CXX."
SEAL = b"fastweights"
SCRATCH, MARK = "fastweights-build-", "built-by-fastweights"
HOUR = 3600


def compiler() -> list[str]:
    """The command of the compiler: `$CXX`, else the first of `c++`, `g++` and `clang++` that is installed; else []."""
    named = os.environ.get("CXX", "").strip()
    for command in map(_words, [named] if named else NAMES):
        path = shutil.which(command[0]) if command else None
        if path:
            return [path, *command[1:]]
    return []


def lack() -> str:
    """That there is no compiler, and what to do about it; empty if there is one."""
    named = os.environ.get("CXX", "").strip()
    absent = f"there is no C++ compiler{f' {named!r}, which $CXX names' if named else ''}. {REMEDY}"
    return "" if compiler() else absent


def _words(command: str) -> list[str]:
    """As the shell takes them; none where a quotation does not end."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def lanes(dtype: torch.dtype) -> int:
    """How many numbers a vector of this CPU holds."""
    flags = cpu().split()
    width = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    return width // dtype.itemsize


@cache
def cpu() -> str:
    """Model and abilities of this CPU: a kernel that was built for another one must not be loaded."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        return " ".join(line.partition(":")[2].strip() for line in lines if line.startswith(wanted))
    return f"{platform.machine()} {platform.processor()}"


def stem(name: str, *parts: str) -> str:
    """The name in the cache of what is built from `parts` for this CPU, and behind a hyphen which compiler does it."""
    command = compiler()
    identity = []
    if command:
        status = os.stat(command[0])
        identity = [os.path.realpath(command[0]), str(status.st_mtime_ns), str(status.st_size), *command[1:]]
    return f"{name}-{_digest(*parts, cpu(), torch.__version__, *FLAGS)}-{_digest(*identity)[:8] if identity else ''}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def load(stem: str) -> CDLL | None:
    """A library of the cache; None if it is not there, damaged, or not ours."""
    place = kept()
    if place is None:
        return None
    # Where there is no compiler, what any has built will do: as in an image whose kernels were built before.
    paths = [place / f"{stem}.so"] if compiler() else sorted(place.glob(f"{stem}*.so"))
    return next(filter(None, map(_load, paths)), None)


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
        Unbuilt: there is no compiler, or it fails.
    """
    why = "others may write to the temporary folder"
    for place in places():
        try:
            return _build_in(place, source, stem)
        except OSError as error:
            why = str(error)
    raise Unbuilt(
        f"there is no folder for compiled kernels ({why}); set $FASTWEIGHTS_CACHE to one that is yours alone."
    )


def _seal(content: bytes) -> bytes:
    """What ends every library: one that was cut short or changed could crash the process that loads it."""
    return SEAL + hashlib.sha256(content).digest()


def _build_in(place: Path, source: str, stem: str) -> CDLL:
    _sweep(place)
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=place, ignore_cleanup_errors=True) as scratch:
        Path(scratch, MARK).write_bytes(SEAL)
        code, library = Path(scratch, f"{stem}.cpp"), Path(scratch, f"{stem}.so")
        code.write_text(source, encoding="utf-8")
        _compile(code, library)
        content = library.read_bytes()
        library.write_bytes(content + _seal(content))
        library.chmod(0o700)
        code.replace(place / code.name)
        library.replace(place / library.name)
    return CDLL(str(place / library.name))


def _sweep(place: Path) -> None:
    """Removes what killed builds have left: old folders with our mark in them, and nothing else."""
    for left in place.glob(f"{SCRATCH}*"):
        with suppress(OSError):
            marked = is_trusted(left / MARK) and (left / MARK).read_bytes() == SEAL and not left.is_symlink()
            if marked and time.time() - (left / MARK).stat().st_mtime > HOUR:
                shutil.rmtree(left, ignore_errors=True)


def _compile(code: Path, library: Path) -> None:
    command = compiler()
    if not command:
        raise Unbuilt(lack())
    complaint = _attempt([*command, THREADS], code, library)
    if any(word in complaint.lower() for word in ("openmp", "gomp", "-lomp", "omp.h")):
        complaint = _attempt(command, code, library)  # then without threads
    if complaint:
        lines = [line for line in complaint.splitlines() if "error" in line] or complaint.splitlines()
        raise Unbuilt(f"the compiler {command[0]} fails ({lines[0].strip()[:300]}). {REMEDY}")
    if not library.exists():
        raise Unbuilt(f"the compiler {command[0]} writes nothing. {REMEDY}")


def _attempt(command: list[str], code: Path, library: Path) -> str:
    """Runs a compiler; returns what it complains of, empty if it succeeds."""
    arguments = [*command, *FLAGS, str(code), "-o", str(library), *_runtime()]
    # In English, since what it complains of is read below.
    how = {"env": os.environ | {"LC_ALL": "C"}, "text": True, "errors": "replace", "stdin": subprocess.DEVNULL}
    try:
        result = subprocess.run(arguments, capture_output=True, **how)  # type: ignore[call-overload]
    except OSError as error:
        return f"error: {error.strerror}"
    if "No space left" in result.stderr:
        raise OSError(result.stderr)
    return (result.stderr or f"exit status {result.returncode}") if result.returncode else ""


def _runtime() -> list[str]:
    """The OpenMP library that torch has loaded, so that both share their threads."""
    return [str(path) for path in sorted(Path(torch.__file__).parent.glob("lib/libgomp*"))[:1]]
