"""Data files, located or downloaded, and verified by a checksum."""

import gzip
import hashlib
import http.client
import io
import os
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastweights.core.errors import InputError, require
from fastweights.core.files import LARGEST, cache_folder, make_private, read_file, write_atomically

TIMEOUT = 60.0
"""Timeout of a download in seconds."""

PIECE = 1 << 20
"""Number of bytes that are decompressed at a time."""


class MissingFile(InputError):
    """Missing file that could not be downloaded.

    Args:
        message: Message, with the source of the file.
    """


@dataclass(frozen=True)
class DataFile:
    """A published file with fixed content, which is downloaded if it is missing.

    Args:
        path: Path in a data folder, such as `mnist/t10k-labels-idx1-ubyte.gz`.
        size: Size in bytes.
        sha256: SHA-256 of its content.
        urls: URLs for the download, tried in order.
    """

    path: str
    size: int
    sha256: str
    urls: tuple[str, ...] = ()

    def read(self) -> bytes:
        """Returns the content, from `$FASTWEIGHTS_DATA`, the cache, or a download to the cache.

        `InputError` if a file exists with other content, `MissingFile` if there is none.
        """
        return read_file(self.fetch(), "data file")

    def fetch(self) -> Path:
        """Returns the path of the file, which is verified, and downloaded to the cache if it is missing."""
        # Also under its bare name, since the checksum is verified.
        path = find(self.path, Path(self.path).name)
        if path is None:
            return download(self.path, self.urls, self.size, self._problem, self._expected)
        if problem := self._problem(read_file(path, "data file")):
            raise InputError(f"{path} must be {self._expected}, got {problem}. Delete it or fetch it again.")
        return path

    @property
    def _expected(self) -> str:
        return f"{self.size:,} bytes with SHA-256 {self.sha256}"

    def _problem(self, content: bytes) -> str:
        """Describes wrong content; empty if the content is right."""
        sha256 = hashlib.sha256(content).hexdigest()
        return "" if sha256 == self.sha256 else f"{len(content):,} bytes with SHA-256 {sha256}"


@dataclass(frozen=True)
class ManualFile:
    """A file that the user puts into a data folder, since its content or its licence does not allow a download.

    Args:
        path: Path in a data folder, such as `cifar-100/cifar-100-binary.tar.gz`.
        instructions: Sentences on how to get the file, with a URL.
        others: Other paths that are searched.
    """

    path: str
    instructions: str
    others: tuple[str, ...] = ()

    def fetch(self) -> Path:
        """Returns the path of the file; `MissingFile` with the instructions if it is missing."""
        if path := find(self.path, *self.others):
            return path
        raise MissingFile(f"{self.path} must be a file, got no such file. {self.instructions} {remedy(self.path)}")


def download(path: str, urls: Sequence[str], limit: int, problem_of: Callable[[bytes], str], expected: str) -> Path:
    """Downloads a file into the cache; returns its path. Several processes may do so at the same time.

    Args:
        path: Path in a data folder.
        urls: URLs, tried in order.
        limit: Maximum number of bytes.
        problem_of: Describes wrong content; returns an empty string for right content.
        expected: Description of right content, for the error message.

    Raises:
        MissingFile: No URL has the right content. Nothing is written.
    """
    problems = []
    for url in urls:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
                content: bytes = answer.read(limit + 1)
        except (OSError, http.client.HTTPException) as error:
            problems.append(f"{url}: {error or type(error).__name__}")
            continue
        if problem := problem_of(content):
            problems.append(f"{url}: {problem}, not {expected}")
            continue
        target = data_cache() / path
        make_private(target.parent)
        write_atomically(target, content)
        return target
    tried = f"; {'; '.join(problems)}" if problems else ""
    raise MissingFile(f"{path} must be {expected}, got no such file{tried}. {remedy(path)}")


def data_cache() -> Path:
    """Folder of downloads."""
    return cache_folder() / "data"


def find(path: str, *others: str) -> Path | None:
    """Path of a data file: in `$FASTWEIGHTS_DATA` under its path or another, or in the cache under its path."""
    folder = os.environ.get("FASTWEIGHTS_DATA")
    candidates = [Path(folder) / candidate for candidate in (path, *others)] if folder else []
    return next((candidate for candidate in [*candidates, data_cache() / path] if candidate.is_file()), None)


def gunzip(content: bytes, name: str, limit: int = LARGEST) -> bytes:
    """The content of a gzip file; `InputError` if it is truncated, damaged or more than `limit` bytes.

    A gzip file can be a thousand times smaller than its content, so it is decompressed piece by piece.
    """
    whole = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            while len(whole) <= limit and (piece := file.read(PIECE)):
                whole += piece
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} must be a whole gzip file, got {len(content):,} bytes: {error}.") from None
    require(len(whole) <= limit, name, f"a file of at most {limit:,} bytes when unpacked", "more")
    return bytes(whole)


def remedy(path: str) -> str:
    """The place for a missing file, and the command for its data set."""
    folder = os.environ.get("FASTWEIGHTS_DATA")
    target = (Path(folder) if folder else data_cache()) / path
    return f"Save it as {target}. See fastweights data {path.partition('/')[0]}."
