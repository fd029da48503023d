"""The folder of compiled kernels. What is loaded from it runs: so nobody else may write into it."""

import hashlib
import logging
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fastweights.compiler.clean_thread import PerProcess
from fastweights.core.errors import InputError
from fastweights.core.files import cache_folder, make_private, write_atomically

log = logging.getLogger("fastweights")

MAKING = PerProcess(threading.Lock)
"""Two ways over time are built at once: what they share is made once."""
FOREIGN_WRITE = stat.S_IWGRP | stat.S_IWOTH


def digest(*parts: str) -> str:
    """A short digest of some texts, for the name of a file in the cache."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def places() -> Iterator[Path]:
    """Where a kernel may be built: for all processes of the user, and if that fails, for this one alone."""
    shared = kept()
    if shared is not None:
        yield shared
    with MAKING.own:
        alone = Path(os.path.realpath(_temporary().name))
    if not risk(alone):
        yield alone


def kept() -> Path | None:
    """`$FASTWEIGHTS_CACHE`, else `fastweights` in the user's cache folder; None where nothing can be kept safely."""
    try:
        path = Path(os.path.realpath(os.environ.get("FASTWEIGHTS_CACHE") or cache_folder()))
        make_private(path)
        why = risk(path)
    except OSError as error:
        path, why = Path(error.filename or "the cache"), error.strerror or str(error)
    except InputError as error:
        path, why = Path("the cache"), str(error)
    if not why:
        return path
    remedy = "Set $FASTWEIGHTS_CACHE to a folder that is yours alone."
    _say(f"compiled kernels are not kept in {path} ({why}), but built anew in every process. {remedy}")
    return None


def risk(folder: Path) -> str:
    """What lets somebody else put a file into a folder, or another folder in its place; empty if nothing does.

    A folder above may be for all if it is sticky, as the system's temporary folder is: then nobody can rename what is
    ours. `folder` is a path without symbolic links, since what those name can change.
    """
    if not hasattr(os, "geteuid"):
        return ""  # Windows: the folders of a user are closed by other means
    if folder.lstat().st_mode & FOREIGN_WRITE:
        return "others may write to it"
    return next(filter(None, map(_risk_above, [folder, *folder.parents])), "")


def is_trusted(file: Path) -> bool:
    """Whether a file of a safe folder came from us: it may have been put there before the folder was safe."""
    status = file.lstat()
    return stat.S_ISREG(status.st_mode) and _is_ours(status) and not status.st_mode & FOREIGN_WRITE


def write_private(file: Path, content: bytes) -> None:
    """Replaces a file atomically by one that only the user can write, whatever the umask."""
    write_atomically(file, content, durable=False)
    file.chmod(0o600)


def _risk_above(folder: Path) -> str:
    status = folder.lstat()
    if not _is_ours(status):
        return f"{folder} belongs to somebody else"
    sticky = status.st_mode & stat.S_ISVTX
    return f"others may write to {folder}" if status.st_mode & FOREIGN_WRITE and not sticky else ""


def _is_ours(status: os.stat_result) -> bool:
    """The administrator can do anything, anyhow."""
    return not hasattr(os, "geteuid") or status.st_uid in (os.geteuid(), 0)


@cache
def _temporary() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="fastweights-", ignore_cleanup_errors=True)


@cache
def _say(message: str) -> None:
    log.warning(message)
