"""The folder of the kernel cache. Loading a kernel runs its code, so only the user may write to the folder."""

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
"""The lock around the temporary folder, because two kernels of a cell are built at the same time."""
FOREIGN_WRITE = stat.S_IWGRP | stat.S_IWOTH


def digest(*parts: str) -> str:
    """A short digest of some texts, for the name of a file in the cache."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def candidate_folders() -> Iterator[Path]:
    """The folders in which a kernel may be built: the cache of the user, then a temporary folder of this process."""
    shared = kernel_cache_folder()
    if shared is not None:
        yield shared
    with MAKING.own:
        alone = Path(os.path.realpath(_temporary().name))
    if not trust_problem(alone):
        yield alone


def kernel_cache_folder() -> Path | None:
    """The cache folder: `$FASTWEIGHTS_CACHE`, else `fastweights` in the user's cache folder; None if it is not safe."""
    try:
        path = Path(os.path.realpath(os.environ.get("FASTWEIGHTS_CACHE") or cache_folder()))
        make_private(path)
        why = trust_problem(path)
    except OSError as error:
        path, why = Path(error.filename or "the cache"), error.strerror or str(error)
    except InputError as error:
        path, why = Path("the cache"), str(error)
    if not why:
        return path
    remedy = "Set $FASTWEIGHTS_CACHE to a folder that is yours alone."
    _log(f"compiled kernels are not kept in {path} ({why}), but built again in every process. {remedy}")
    return None


def trust_problem(folder: Path) -> str:
    """The reason why another user could replace a file in a folder or the folder itself; empty if there is none.

    A parent folder may be writable for all users if it is sticky, like the system's temporary folder, because others
    cannot rename our files there. `folder` must be a path without symbolic links, which may change.
    """
    if not hasattr(os, "geteuid"):
        return ""  # Windows: the folders of a user are closed by other means
    if folder.lstat().st_mode & FOREIGN_WRITE:
        return "others may write to it"
    return next(filter(None, map(_trust_problem_above, [folder, *folder.parents])), "")


def is_trusted(file: Path) -> bool:
    """Whether a file in a safe folder is ours: another user may have created it before the folder was safe."""
    status = file.lstat()
    return stat.S_ISREG(status.st_mode) and _belongs_to_user(status) and not status.st_mode & FOREIGN_WRITE


def write_private(file: Path, content: bytes) -> None:
    """Replaces a file atomically by one that only the user can write, whatever the umask."""
    write_atomically(file, content, durable=False)
    file.chmod(0o600)


def _trust_problem_above(folder: Path) -> str:
    status = folder.lstat()
    if not _belongs_to_user(status):
        return f"{folder} belongs to another user"
    sticky = status.st_mode & stat.S_ISVTX
    return f"others may write to {folder}" if status.st_mode & FOREIGN_WRITE and not sticky else ""


def _belongs_to_user(status: os.stat_result) -> bool:
    """Whether the user or the administrator, who can do anything, owns a file."""
    return not hasattr(os, "geteuid") or status.st_uid in (os.geteuid(), 0)


@cache
def _temporary() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="fastweights-", ignore_cleanup_errors=True)


@cache
def _log(message: str) -> None:
    log.warning(message)
