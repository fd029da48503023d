"""WikiText: articles of Wikipedia for language modelling, three files in an archive."""

import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import ClassVar

from fastweights.core.errors import InputError, require
from fastweights.core.files import LARGEST, read_file
from fastweights.tasks.sources.corpus import Corpus
from fastweights.tasks.sources.data_set import Fetched

PARTS = {"train": "train", "validation": "valid", "test": "test"}


class WikiText(Corpus):
    """A text in the files of a folder or of the published archive."""

    files: ClassVar[Mapping[str, Fetched]]
    """The files of "train", "valid" and "test"."""

    def read(self, part: str) -> bytes:
        file = self.files[PARTS[part]]
        path = file.fetch()
        content = read_file(path, "data file")
        return member(content, file.path, str(path)) if path.suffix == ".zip" else content


def member(content: bytes, name: str, where: str) -> bytes:
    """Reads a file of a zip archive; `InputError` if it is missing, damaged, or too large."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = archive.getinfo(name).file_size
            require(size <= LARGEST, name, f"a file of at most {LARGEST:,} bytes", f"{size:,}")
            return archive.read(name)
    except KeyError:
        raise InputError(f"{where} must be an archive with {name}, got one without it.") from None
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InputError(f"{where} must be a whole zip archive, got the error: {error}.") from None
