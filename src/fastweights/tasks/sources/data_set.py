"""A published data set."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from fastweights.tasks.sources.data_files import find


class Fetched(Protocol):
    """A file of a data set, found or downloaded by `fetch`."""

    @property
    def path(self) -> str:
        """Path in a data folder."""

    def fetch(self) -> Path:
        """Returns the path of the file on this machine; `MissingFile` if there is none."""


@dataclass(frozen=True)
class FileOrArchive:
    """A file that is alone in a data folder, or inside an archive there.

    Args:
        path: Path of the file in a data folder.
        archive: Path of the archive.
        missing: The file, or its archive, to fetch if both are missing.
    """

    path: str
    archive: str
    missing: Fetched

    def fetch(self) -> Path:
        """Returns the path of the file or of the archive; `MissingFile` if there is none."""
        return find(self.path) or find(self.archive) or self.missing.fetch()


class DataSet(NamedTuple):
    """Files of a data set.

    Args:
        licence: Licence, or terms of use.
        size: Size of all files in words.
        page: URL of the page of its authors.
        files: The files.
    """

    licence: str
    size: str
    page: str
    files: tuple[Fetched, ...]
