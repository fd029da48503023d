"""Images by class: decoded once, scaled to squares, and cached as bytes in a file that all processes share."""

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
"""Number of bytes of SHA-256, at the end of a cached file."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".pgm", ".ppm", ".bmp", ".gif", ".tif", ".tiff", ".webp")
"""Suffixes of image files."""

HIDDEN = {"__macosx", "@eadir", "thumbs.db", "desktop.ini"}
"""Names of files and folders of file managers, other than those that begin with a dot."""

NAMED = 3
"""Number of skipped files that a message names."""

READING = 2
"""Version of the decoding. Cached squares of another version are not used."""

Files = Mapping[str, Sequence[tuple[str, bytes]]]
"""Names and contents of the files of every class."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Square images as bytes, sorted by class.

    Args:
        names: Names of the classes.
        starts: Index of the first image of every class, and the end of the last: int64 `[classes + 1]`.
        images: `[images, channels, side, side]`.
        digest: Digest of the files.
    """

    names: tuple[str, ...]
    starts: NDArray[np.int64]
    images: Bytes
    digest: str

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of images per class."""
        return np.diff(self.starts)


class FileVersion(NamedTuple):
    """The version of a file or folder, a key under which its content can be cached."""

    path: Path
    size: int
    modified: int


def version_of(path: Path) -> FileVersion:
    """The version of a file, by size and time of modification."""
    status = path.stat()
    return FileVersion(path, status.st_size, status.st_mtime_ns)


def is_image_file(name: str) -> bool:
    """Whether a name has the suffix of an image and is not hidden."""
    return name.lower().endswith(SUFFIXES) and not is_hidden(name)


def is_hidden(name: str) -> bool:
    """Whether a file, or a folder above it, belongs to a file manager or a notebook.

    >>> (
    ...     is_hidden("cats/.ipynb_checkpoints/1.png"),
    ...     is_hidden("__MACOSX/cats/1.png"),
    ...     is_hidden("./cats/1.png"),
    ... )
    (True, True, False)
    """
    parts = name.rstrip("/").split("/")
    return any((part[:1] == "." and part not in (".", "..")) or part.casefold() in HIDDEN for part in parts)


def folders_without_images(others: Iterable[str], images: Iterable[str]) -> list[str]:
    """The folders without images, except hidden ones.

    Args:
        others: The names of folders, with a slash at the end, and of files that are no images.
        images: The names of the images.
    """
    filled = {str(parent) for name in images for parent in PurePosixPath(name).parents}
    parents = {name.rpartition("/")[0] for name in others if not is_hidden(name)} - {""}
    return sorted(parent for parent in parents if str(PurePosixPath(parent)) not in filled)


def log_skipped_files(path: Path, others: Sequence[str], empty: Sequence[str] = ()) -> None:
    """Logs one line that names the skipped files of a folder or an archive of images, if there are any.

    Args:
        path: The folder or the archive.
        others: The names of files that are no images or hidden.
        empty: The names of folders without images.
    """
    files = [name for name in others if not name.endswith("/")]
    parts = {"hidden or no images": files, "without images": empty}
    notes = [f"{len(names)} {reason} ({_first(names)})" for reason, names in parts.items() if names]
    if notes:
        _warn_once(f"Left out of {printable(str(path))}: {', '.join(notes)}.")


def _first(names: Sequence[str]) -> str:
    return ", ".join([*map(printable, sorted(names)[:NAMED]), *["..."][: len(names) > NAMED]])


@cache
def _warn_once(message: str) -> None:
    log.warning(message)


def in_order(files: Files) -> Files:
    """Sorts classes and their files by name."""
    return {name: sorted(files[name]) for name in sorted(files)}


def read_images(files: Files, channels: int, side: int) -> ImageSet:
    """Reads all files of all classes as squares; `channels` is 1, 3, or 0 for the number that they all have.

    They are decoded once, into the cache; if that cannot be written they stay in memory.

    Raises:
        InputError: A file is no image, or some are grey and some are not.
    """
    digest = digest_of(files)
    counts = np.array([0, *(len(of_class) for of_class in files.values())])
    contents = [file for of_class in files.values() for file in of_class]
    cache_file = cache_folder() / "images" / f"{digest[:32]}-{channels}-{side}-{READING}.npy"
    images = cached(cache_file, lambda: _decode(contents, channels, side))
    return ImageSet(tuple(files), counts.cumsum(), images, digest)


def cached(path: Path, make: Callable[[], Bytes]) -> Bytes:
    """Memory-maps a file of the cache; `make` creates it if it is missing or damaged."""
    mapped = _mapped(path)
    if mapped is not None:
        return mapped
    images = make()
    with suppress(OSError):
        make_private(path.parent)
        write_atomically(path, _sealed(images))
        mapped = _mapped(path)
    return images if mapped is None else mapped


def square(image: Bytes, side: int) -> Bytes:
    """Scales an image `[channels, height, width]` to a square, by area, without cropping."""
    if image.shape[1:] == (side, side):
        return image
    return np.stack([scale_by_area(channel, side, side) for channel in image])


def _decode(files: Iterable[tuple[str, bytes]], channels: int, side: int) -> Bytes:
    squares: list[Bytes] = []
    for name, content in files:
        image = read_channels(content, name, channels)
        remedy = "Convert them to one kind."
        same_channels = not squares or len(squares[0]) == len(image)
        require(
            same_channels, "images", "all grey or all in colours", f"both, {name} is the first that differs", remedy
        )
        squares.append(square(image, side))
    return np.stack(squares)


def _sealed(images: Bytes) -> bytes:
    file = io.BytesIO()
    np.save(file, images, allow_pickle=False)
    return file.getvalue() + hashlib.sha256(file.getbuffer()).digest()


@lru_cache(maxsize=8)
def _is_whole(file: FileVersion) -> bool:
    """Whether a file ends with the digest of its content; cached per version of the file."""
    content = np.memmap(file.path, np.uint8, "r")
    return hashlib.sha256(content[:-DIGEST].data).digest() == content[-DIGEST:].tobytes()


def _mapped(path: Path) -> Bytes | None:
    """Memory-maps a file; None if it is missing or damaged."""
    try:
        file = version_of(path)
        if file.size <= DIGEST or not _is_whole(file):
            return None
        images: Bytes = np.load(path, mmap_mode="r", allow_pickle=False)
        return images
    except (OSError, ValueError):
        return None


def digest_of(files: Files) -> str:
    """SHA-256 of the names and contents of files."""
    digest = hashlib.sha256()
    for name, of_class in files.items():
        digest.update(f"{len(name)} {name} {len(of_class)} ".encode("utf-8", "surrogateescape"))
        for _, content in of_class:
            digest.update(f"{len(content)} ".encode())
            digest.update(content)
    return digest.hexdigest()
