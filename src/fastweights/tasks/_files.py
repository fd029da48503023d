"""Files of data: found where they are, or downloaded, and never used unless they are the right ones."""

import gzip
import hashlib
import http.client
import os
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path

from fastweights.errors import InputError

TIMEOUT = 60.0
"""Seconds without an answer before a download is given up."""


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
        found = find(self.path)
        if found is None:
            return self._download(cache_folder() / self.path)
        content = read_file(found)
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
            _save(target, content)
            return content
        tried = f"; {'; '.join(problems)}" if problems else ""
        raise MissingFile(f"{self.path} must be {self._expected}, got no such file{tried}. {_remedy(self.path)}")


def require_found(path: str, whence: str) -> Path:
    """Where a file is that has no fixed content; `MissingFile` says whence to get it."""
    found = find(path)
    if found is None:
        raise MissingFile(f"{path} must be a file, got no such file. It comes from {whence}. {_remedy(path)}")
    return found


def find(path: str) -> Path | None:
    """A file of a data folder: in `$FASTWEIGHTS_DATA` under its path or its bare name, else in the cache."""
    folder = os.environ.get("FASTWEIGHTS_DATA")
    places = [Path(folder) / path, Path(folder) / Path(path).name] if folder else []
    return next((place for place in [*places, cache_folder() / path] if place.is_file()), None)


def cache_folder() -> Path:
    """Where downloads are kept."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "fastweights" / "data"


def read_file(path: Path) -> bytes:
    """All bytes of a file; `InputError` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"data file must be readable, got {path}: {error.strerror}.") from None


def gunzip(content: bytes, name: str) -> bytes:
    """The content of a gzip file; `InputError` if it is truncated or damaged."""
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} must be a whole gzip file, got {len(content):,} bytes: {error}.") from None


def _remedy(path: str) -> str:
    return f"Put it into the folder that FASTWEIGHTS_DATA names, as {path}."


def _save(path: Path, content: bytes) -> None:
    """Into the cache, whole or not at all; a second process that downloads the same does no harm."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
