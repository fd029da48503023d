"""The C++ compiler with the flags that it supports. They are tried once per compiler."""

import json
import logging
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import torch

from fastweights.compiler.clean_thread import PerProcess
from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.targets.cache import digest, is_trusted, kernel_cache_folder, write_private
from fastweights.compiler.targets.cpp.attempt import REMEDY, Unloadable, attempt, loaded
from fastweights.compiler.targets.cpp.cache_folder import NoFolder, in_some_place
from fastweights.compiler.targets.cpp.compiler import absence, compiler, identity
from fastweights.compiler.targets.cpp.cpu import cpu
from fastweights.compiler.targets.cpp.flags import BASES, BEST, CHOICES, SHARED, openmp
from fastweights.compiler.targets.cpp.scratch import scratch

log = logging.getLogger("fastweights")

Flags = tuple[str, ...]
PAUSE = 60.0
"""Seconds after which a compiler that failed is tried again: its headers may have been installed since."""
LIBRARIES = Path(torch.__file__).parent / "lib"
HEAD = "#define FASTWEIGHTS_DOUBLE 0\n"


class Toolchain(NamedTuple):
    """A compiler, its flags, and those for OpenMP: none where Python threads share the work instead."""

    command: Flags
    flags: Flags
    threads: Flags = ()

    def build(self, code: Path, library: Path) -> None:
        """Compiles a file into a library. Raises as `attempt` does."""
        # Libraries come last: a linker takes from them only what was asked for before.
        attempt([*self.command, SHARED, *self.flags, str(code), "-o", str(library), *self.threads], library)


class _Failed(NamedTuple):
    why: str
    when: float


_KNOWN: dict[str, Toolchain | _Failed] = {}
_LOCK = PerProcess(threading.Lock)
"""The kernels of both directions are built at the same time, but the compiler is tried once."""


def missing_requirement() -> str:
    """Why no kernel can be built on this machine, with a remedy; empty if kernels can be built."""
    try:
        toolchain()
    except Unbuilt as error:
        return str(error)
    return ""


def toolchain(renew: bool = False) -> Toolchain:
    """The compiler of this machine; with `renew`, it is tried again.

    The cache of kernels stores the result for all processes.

    Raises:
        Unbuilt: there is no compiler, it fails whatever its flags, or what it builds does not load.
    """
    if why := absence():
        raise Unbuilt(why)
    name = f"compiler-{digest(*identity(), cpu(), torch.__version__, sys.platform, repr((BEST, CHOICES)), _source())}"
    with _LOCK.own:
        known = None if renew else _KNOWN.get(name) or _read(name)
        if known is None or (isinstance(known, _Failed) and time.monotonic() > known.when + PAUSE):
            known = _found(name)
        _KNOWN[name] = known
    if isinstance(known, _Failed):
        raise Unbuilt(known.why)
    return known


def _source() -> str:
    parts = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("runtime.h", "probe.cpp")]
    return "\n".join([HEAD, *parts])


def _read(name: str) -> Toolchain | None:
    """The result of an earlier process; None if there is none that can be trusted."""
    place = kernel_cache_folder()
    with suppress(OSError, ValueError, TypeError, KeyError):
        if place is not None and is_trusted(place / f"{name}.json"):
            content = json.loads((place / f"{name}.json").read_bytes())
            return Toolchain(tuple(compiler()), tuple(map(str, content["flags"])), tuple(map(str, content["threads"])))
    return None


def _found(name: str) -> Toolchain | _Failed:
    try:
        return in_some_place(lambda place: _probed(place, name))
    except NoFolder:
        raise  # and tried again when one is asked for next
    except Unbuilt as error:
        return _Failed(str(error), time.monotonic())


def _probed(place: Path, name: str) -> Toolchain:
    with scratch(place) as folder:
        made = _Probe(folder).toolchain()
    text = json.dumps({"flags": made.flags, "threads": made.threads})
    write_private(place / f"{name}.json", text.encode())
    return made


class _Probe:
    """Tries flags on a small program, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.command, self.folder, self.number = tuple(compiler()), folder, count()
        self.code = folder / "probe.cpp"
        self.code.write_text(_source(), encoding="utf-8")

    def toolchain(self) -> Toolchain:
        """The compiler with the best flags that it supports."""
        choices = openmp(sys.platform, self.command, LIBRARIES)
        best = Toolchain(self.command, BEST, choices[0] if choices else ())
        if not self._complaint(best):
            return best
        best_so_far = self._plain()
        complaints = []
        for threads in choices:
            complaints.append(self._complaint(best_so_far._replace(threads=threads)))
            if not complaints[-1]:
                return best_so_far._replace(threads=threads)
        if complaints:
            log.warning(f"kernels use threads of Python instead of OpenMP: {complaints[0]}")
        return best_so_far

    def _plain(self) -> Toolchain:
        """The compiler with the best flags that it supports, without OpenMP."""
        best = Toolchain(self.command, BEST)
        if not self._complaint(best):
            return best
        best_so_far = self._base()
        for choice in CHOICES:
            more = (best_so_far._replace(flags=(*best_so_far.flags, flag)) for flag in choice)
            best_so_far = next((tools for tools in more if not self._complaint(tools)), best_so_far)
        return best_so_far

    def _base(self) -> Toolchain:
        errors: list[Unbuilt | OSError] = []
        for base in BASES:
            try:
                self._try(Toolchain(self.command, base))
                return Toolchain(self.command, base)
            except (Unbuilt, Unloadable) as error:
                errors.append(error)
        raise errors[0]

    def _complaint(self, tools: Toolchain) -> str:
        """Why a compiler does not build with some flags, or why what it builds does not load; empty if all is well."""
        try:
            self._try(tools)
        except (Unbuilt, Unloadable) as error:
            return str(error)
        return ""

    def _try(self, tools: Toolchain) -> None:
        library = self.folder / f"probe-{next(self.number)}.so"
        tools.build(self.code, library)
        if not hasattr(loaded(library, tools.command[0]), "probe"):
            raise Unbuilt(f"the compiler {tools.command[0]} builds libraries that lack their functions. {REMEDY}")
