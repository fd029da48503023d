"""Published archives, verified by their members: the same files may be packed in different ways."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from fastweights.core.errors import InputError
from fastweights.tasks.sources.archives import archive_members
from fastweights.tasks.sources.data_files import download, find


@dataclass(frozen=True)
class DataArchive:
    """A published archive whose members have fixed content, which is downloaded if it is missing.

    Args:
        path: Path in a data folder, such as `omniglot/images_background.zip`.
        limit: Maximum size in bytes.
        members: Regular expression that the names of the members match.
        sha256: SHA-256 of the sorted members: of name, size and content of each.
        urls: URLs for the download, tried in order.
        others: Other paths that are searched.
    """

    path: str
    limit: int
    members: str
    sha256: str
    urls: tuple[str, ...]
    others: tuple[str, ...] = ()

    def fetch(self) -> Path:
        """Returns the path of the archive, which is downloaded to the cache if it is missing; `MissingFile` on failure.

        A download is verified. An archive that the user put into a data folder is taken as it is.
        """
        expected = f"an archive whose members have SHA-256 {self.sha256}"
        return find(self.path, *self.others) or download(self.path, self.urls, self.limit, self._problem, expected)

    def _problem(self, content: bytes) -> str:
        """Describes wrong content; empty if the content is right."""
        try:
            sha256 = self.digest(content)
        except InputError as error:
            return str(error).rstrip(".")
        return "" if sha256 == self.sha256 else f"members with SHA-256 {sha256}"

    def digest(self, content: bytes) -> str:
        """SHA-256 of the members of an archive."""
        digest = hashlib.sha256()
        for name, member in sorted(archive_members(content, Path(self.path), re.compile(self.members).search)):
            digest.update(f"{name}\0{len(member)}\0".encode())
            digest.update(member)
        return digest.hexdigest()
