"""Files of data: found where they are, or downloaded, and never used unless they are the right ones."""

import gzip
import hashlib
import http.client
import io
import os
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path

from fastweights.core.errors import InputError, require
from fastweights.core.files import LARGEST, cache_folder, make_private, read_file, write_atomically

TIMEOUT = 60.0
"""Seconds without an answer before a download is given up."""

PIECE = 1 << 20
"""Bytes that are unpacked at once."""


class MissingFile(InputError):
    """A file that is not there and could not be downloaded."""


@dataclass(frozen=True)
class DataFile:
    """A file that everybody has the same copy of.

    Args:
        path: Where it lies in a data folder, such as `mnist/t10k-labels-idx1-ubyte.gz`.
        size: In bytes.
        sha256: Of its content.
        urls: Where it can be downloaded; the first that has it serves.
    """

    path: str
    size: int
    sha256: str
    urls: tuple[str, ...] = ()

    def read(self) -> bytes:
        """The content, from `$FASTWEIGHTS_DATA`, else from the cache, else downloaded to the cache.

        `InputError` if a file is there but is not the right one, `MissingFile` if there is none.
        """
        # Under its bare name, too: whatever lies there must be the right one.
        found = find(self.path, Path(self.path).name)
        if found is None:
            return self._download(data_cache() / self.path)
        content = read_file(found, "data file")
        if problem := self._problem(content):
            raise InputError(f"{found} must be {self._expected}, got {problem}. Delete it or fetch it again.")
        return content

    @property
    def _expected(self) -> str:
        return f"{self.size:,} bytes with SHA-256 {self.sha256}"

    def _problem(self, content: bytes) -> str:
        """What is there instead; empty if the content is right."""
        sha256 = hashlib.sha256(content).hexdigest()
        return "" if sha256 == self.sha256 else f"{len(content):,} bytes with SHA-256 {sha256}"

    def _download(self, target: Path) -> bytes:
        problems = []
        for url in self.urls:
            try:
                with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
                    content: bytes = answer.read(self.size + 1)
            except (OSError, http.client.HTTPException) as error:
                problems.append(f"{url}: {error or type(error).__name__}")
                continue
            if problem := self._problem(content):
                problems.append(f"{url}: {problem}, not {self._expected}")
                continue
            make_private(target.parent)
            write_atomically(target, content)
            return content
        tried = f"; {'; '.join(problems)}" if problems else ""
        raise MissingFile(f"{self.path} must be {self._expected}, got no such file{tried}. {_remedy(self.path)}")


def require_found(path: str, whence: str) -> Path:
    """Where a file is that has no fixed content; `MissingFile` says whence to get it."""
    found = find(path)
    if found is None:
        raise MissingFile(f"{path} must be a file, got no such file. It comes from {whence}. {_remedy(path)}")
    return found


def data_cache() -> Path:
    """Where downloads are kept."""
    return cache_folder() / "data"


def find(path: str, *others: str) -> Path | None:
    """A file of a data folder: in `$FASTWEIGHTS_DATA` under its path or another, else in the cache under its path."""
    folder = os.environ.get("FASTWEIGHTS_DATA")
    places = [Path(folder) / place for place in (path, *others)] if folder else []
    return next((place for place in [*places, data_cache() / path] if place.is_file()), None)


def gunzip(content: bytes, name: str, limit: int = LARGEST) -> bytes:
    """The content of a gzip file; `InputError` if it is truncated, damaged or more than `limit` bytes.

    A thousandth of that can hold it: it is unpacked piece by piece, to be given up in time.
    """
    whole = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            while len(whole) <= limit and (piece := file.read(PIECE)):
                whole += piece
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} must be a whole gzip file, got {len(content):,} bytes: {error}.") from None
    require(len(whole) <= limit, name, f"of at most {limit:,} bytes when unpacked", "more")
    return bytes(whole)


def _remedy(path: str) -> str:
    return f"Put it into the folder that FASTWEIGHTS_DATA names, as {path}."
