"""Pictures by class: decoded once, scaled to squares, and kept as bytes in a file that all processes share."""

import hashlib
import io
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastweights.core.errors import require
from fastweights.core.files import cache_folder, make_private, write_atomically
from fastweights.core.printable import printable
from fastweights.tasks.sources.images import Bytes, read_channels, scale_by_area

log = logging.getLogger("fastweights")

DIGEST = 32
"""Bytes of SHA-256, behind what is kept."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".pgm", ".ppm", ".bmp", ".gif", ".tif", ".tiff", ".webp")
"""Of files that are read as pictures."""

HIDDEN = {"__macosx", "@eadir", "thumbs.db", "desktop.ini"}
"""Names of what file managers make for themselves, beside those that begin with a dot."""

NAMED = 3
"""Files that are named of those that are left out."""

READING = 2
"""The version of how pictures are read. Squares that another version has put into the cache are not used."""

Files = Mapping[str, Sequence[tuple[str, bytes]]]
"""Names and contents of the files of every class."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Squares of bytes, those of a class together.

    Args:
        names: Of the classes.
        starts: Where the pictures of every class begin, and where the last ends: int64 `[classes + 1]`.
        images: `[pictures, channels, side, side]`.
        digest: Of the files that they came from.
    """

    names: tuple[str, ...]
    starts: NDArray[np.int64]
    images: Bytes
    digest: str

    @property
    def counts(self) -> NDArray[np.int64]:
        """Pictures of every class."""
        return np.diff(self.starts)


class AsItIs(NamedTuple):
    """A file or a folder in a state of it: what was read of it need not be read again while it is as it is."""

    path: Path
    size: int
    modified: int


def as_it_is(path: Path) -> AsItIs:
    """The state of a file."""
    status = path.stat()
    return AsItIs(path, status.st_size, status.st_mtime_ns)


def is_picture(name: str) -> bool:
    """By the end of its name, unless it is hidden."""
    return name.lower().endswith(SUFFIXES) and not is_hidden(name)


def is_hidden(name: str) -> bool:
    """Whether a file, or a folder above it, is one that file managers and notebooks make for themselves.

    >>> is_hidden("cats/.ipynb_checkpoints/1.png"), is_hidden("__MACOSX/cats/1.png"), is_hidden("./cats/1.png")
    (True, True, False)
    """
    parts = name.rstrip("/").split("/")
    return any((part[:1] == "." and part not in (".", "..")) or part.casefold() in HIDDEN for part in parts)


def without_pictures(others: Iterable[str], found: Iterable[str]) -> list[str]:
    """The folders that hold no picture, hidden ones left out.

    Args:
        others: The names of folders, with a slash behind them, and of files that are no pictures.
        found: The names of the pictures.
    """
    filled = {str(home) for name in found for home in PurePosixPath(name).parents}
    homes = {name.rpartition("/")[0] for name in others if not is_hidden(name)} - {""}
    return sorted(home for home in homes if str(PurePosixPath(home)) not in filled)


def tell_left_out(path: Path, others: Sequence[str], empty: Sequence[str] = ()) -> None:
    """Logs one line that names what is not read of a folder or an archive of pictures, unless all of it is.

    Args:
        path: The folder or the archive.
        others: The names of files that are no pictures or hidden.
        empty: The names of folders without pictures.
    """
    files = [name for name in others if not name.endswith("/")]
    parts = {"hidden or no pictures": files, "without pictures": empty}
    said = [f"{len(names)} {what} ({_first(names)})" for what, names in parts.items() if names]
    if said:
        _say(f"Left out of {printable(str(path))}: {', '.join(said)}.")


def _first(names: Sequence[str]) -> str:
    return ", ".join([*map(printable, sorted(names)[:NAMED]), *["..."][: len(names) > NAMED]])


@cache
def _say(message: str) -> None:
    log.warning(message)


def in_order(files: Files) -> Files:
    """Classes and their files by name."""
    return {name: sorted(files[name]) for name in sorted(files)}


def read_pictures(files: Files, channels: int, side: int) -> Pictures:
    """All files of all classes as squares; `channels` is 1, 3, or 0 for what they all have themselves.

    They are decoded the first time only, into the cache; where that cannot be written they lie in memory.

    Raises:
        InputError: A file is no picture, or some are grey and some are not.
    """
    digest = digest_of(files)
    counts = np.array([0, *(len(of_class) for of_class in files.values())])
    contents = [file for of_class in files.values() for file in of_class]
    kept = cache_folder() / "pictures" / f"{digest[:32]}-{channels}-{side}-{READING}.npy"
    images = remembered(kept, lambda: _decode(contents, channels, side))
    return Pictures(tuple(files), counts.cumsum(), images, digest)


def remembered(path: Path, make: Callable[[], Bytes]) -> Bytes:
    """What a file of the cache holds, read where it lies; made anew unless it is whole."""
    found = _mapped(path)
    if found is not None:
        return found
    images = make()
    with suppress(OSError):
        make_private(path.parent)
        write_atomically(path, _sealed(images))
        found = _mapped(path)
    return images if found is None else found


def square(image: Bytes, side: int) -> Bytes:
    """An image `[channels, height, width]` as a square, by area: nothing is cut off."""
    if image.shape[1:] == (side, side):
        return image
    return np.stack([scale_by_area(channel, side, side) for channel in image])


def _decode(files: Iterable[tuple[str, bytes]], channels: int, side: int) -> Bytes:
    found: list[Bytes] = []
    for name, content in files:
        image = read_channels(content, name, channels)
        remedy = "Make them all of one kind."
        alike = not found or len(found[0]) == len(image)
        require(alike, "pictures", "all grey or all in colours", f"both, {name} is the first that differs", remedy)
        found.append(square(image, side))
    return np.stack(found)


def _sealed(images: Bytes) -> bytes:
    file = io.BytesIO()
    np.save(file, images, allow_pickle=False)
    return file.getvalue() + hashlib.sha256(file.getbuffer()).digest()


@lru_cache(maxsize=8)
def _is_whole(file: AsItIs) -> bool:
    """Whether a file ends in the digest of what comes before; asked once for every state of it."""
    content = np.memmap(file.path, np.uint8, "r")
    return hashlib.sha256(content[:-DIGEST].data).digest() == content[-DIGEST:].tobytes()


def _mapped(path: Path) -> Bytes | None:
    """None unless the file is there, and as it was written."""
    try:
        file = as_it_is(path)
        if file.size <= DIGEST or not _is_whole(file):
            return None
        images: Bytes = np.load(path, mmap_mode="r", allow_pickle=False)
        return images
    except (OSError, ValueError):
        return None


def digest_of(files: Files) -> str:
    """SHA-256 of names and contents."""
    digest = hashlib.sha256()
    for name, of_class in files.items():
        digest.update(f"{len(name)} {name} {len(of_class)} ".encode("utf-8", "surrogateescape"))
        for _, content in of_class:
            digest.update(f"{len(content)} ".encode())
            digest.update(content)
    return digest.hexdigest()
