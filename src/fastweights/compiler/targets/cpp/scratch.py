"""Folders in which one process compiles, and the removal of those that killed processes left."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastweights.compiler.targets.cache import is_trusted

SEAL = b"fastweights"
PREFIX, MARK = "fastweights-build-", "built-by-fastweights"
HOUR = 3600


@contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """A new folder inside `place`, for this process alone and for a while."""
    _sweep(place)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=place, ignore_cleanup_errors=True) as folder:
        Path(folder, MARK).write_bytes(SEAL)
        yield Path(folder)


def _sweep(place: Path) -> None:
    """Removes old folders with our mark, and nothing else."""
    for left in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            marked = is_trusted(left / MARK) and (left / MARK).read_bytes() == SEAL and not left.is_symlink()
            if marked and time.time() - (left / MARK).stat().st_mtime > HOUR:
                shutil.rmtree(left, ignore_errors=True)
