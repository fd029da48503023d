"""WikiText: articles of Wikipedia for language modelling, three files in an archive."""

import io
import zipfile
import zlib
from typing import ClassVar

from fastweights.core.errors import InputError, require
from fastweights.core.files import LARGEST, read_file
from fastweights.tasks.sources.corpus import Corpus
from fastweights.tasks.sources.data_files import find, require_found

FILES = {"train": "wiki.train.tokens", "validation": "wiki.valid.tokens", "test": "wiki.test.tokens"}


class WikiText(Corpus):
    """A text in the files of a folder or of the published archive."""

    folder: ClassVar[str]
    archive: ClassVar[str]

    def read(self, part: str) -> bytes:
        name = f"{self.folder}/{FILES[part]}"
        file = find(name)
        if file is not None:
            return read_file(file, "data file")
        path = require_found(f"{self.folder}/{self.archive}", "Merity, Xiong, Bradbury and Socher 2017 (WikiText)")
        return member(read_file(path, "data file"), name, str(path))


def member(content: bytes, name: str, where: str) -> bytes:
    """Reads a file of a zip archive; `InputError` if it is missing, damaged, or too large."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = archive.getinfo(name).file_size
            require(size <= LARGEST, name, f"of at most {LARGEST:,} bytes", f"{size:,}")
            return archive.read(name)
    except KeyError:
        raise InputError(f"{where} must be an archive with {name}, got one without it.") from None
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InputError(f"{where} must be a whole zip archive, got: {error}.") from None
