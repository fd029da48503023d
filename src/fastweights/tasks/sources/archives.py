"""Files in a folder or in an untrusted archive: nothing is unpacked to disk, and memory is bounded."""

import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from fastweights.core.errors import InputError, require
from fastweights.core.files import LARGEST, read_file
from fastweights.tasks.sources.data_files import gunzip

FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
EXTENSIONS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
"""Types of headers that extend the next member."""

LONGEST_NAME = 4096
"""Maximum length of a name in characters, since the time of patterns may grow with its square."""

ZIP = b"PK\x03\x04"
"""First bytes of a zip archive that is not empty."""

Member = tuple[str, bytes]


def members(path: Path, is_member: Callable[[str], object], others: list[str] | None = None) -> Iterator[Member]:
    """Yields name and content of the `is_member` regular files of a folder, a `.tar`, a `.tar.gz` or a `.zip`.

    The names of all other files are added to `others`, those of folders with a slash at the end. `InputError` if the
    folder cannot be read, is damaged, or has more than `LARGEST` bytes.
    """
    others = [] if others is None else others
    if path.is_dir():
        yield from _bounded(_in_folder(path, is_member, others), path)
    else:
        yield from archive_members(read_file(path, "data file"), path, is_member, others)


def archive_members(
    content: bytes, path: Path, is_member: Callable[[str], object], others: list[str] | None = None
) -> Iterator[Member]:
    """Yields the `is_member` regular files of the content of an archive, as `members` does; `path` is for messages."""
    yield from _bounded(_in_archive(content, path, is_member, [] if others is None else others), path)


def _bounded(files: Iterator[Member], path: Path) -> Iterator[Member]:
    total = 0
    for name, content in files:
        total += len(content)
        require(total <= LARGEST, "folder", f"a folder of at most {LARGEST:,} bytes", f"{path} with more")
        yield name, content


def _in_folder(folder: Path, is_member: Callable[[str], object], others: list[str]) -> Iterator[Member]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if is_member(name) and path.is_file():
            yield name, read_file(path, "data file")
        else:
            others.append(f"{name}/" if path.is_dir() else name)


def _in_archive(content: bytes, path: Path, is_member: Callable[[str], object], others: list[str]) -> Iterator[Member]:
    if content[:4] == ZIP:
        yield from _in_zip(content, path, is_member, others)
        return
    # Decompressed as a whole, since the checksum is at the end.
    content = gunzip(content, str(path)) if content[:2] == b"\x1f\x8b" else content
    try:
        for name, file in _in_tar(content):
            if is_member(name):
                yield name, file
            else:
                others.append(name)
    except (tarfile.TarError, ValueError) as error:
        raise InputError(f"folder must be a folder or a whole tar archive, got {path}: {error}.") from None


def _in_zip(content: bytes, path: Path, is_member: Callable[[str], object], others: list[str]) -> Iterator[Member]:
    """Yields regular files. Python's reader ensures that none is larger than its header states."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            chosen = [m for m in archive.infolist() if not m.is_dir() and is_member(_checked(m.filename))]
            others += {m.filename for m in archive.infolist()} - {m.filename for m in chosen}
            total = sum(member.file_size for member in chosen)
            require(total <= LARGEST, "folder", f"a folder of at most {LARGEST:,} bytes", f"{path} with more")
            yield from ((member.filename, archive.read(member)) for member in chosen)
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"folder must be a folder or a whole zip archive, got {path}: {error}.") from None


def _in_tar(content: bytes) -> Iterator[Member]:
    """Yields regular files, member by member.

    Python's reader would fill the holes of sparse files, and can be made to seek backwards or to search for hours.
    """
    file, long_name = io.BytesIO(content), b""
    while (block := file.read(tarfile.BLOCKSIZE)).strip(b"\0"):
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        part = _take(file, header.size) if _has_content(header) else b""
        if header.type == tarfile.GNUTYPE_LONGNAME:
            long_name = part.partition(b"\0")[0]
        elif header.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            long_name = _extended_name(part) or long_name
        else:
            if header.type in FILES:
                yield _checked(long_name.decode("utf-8", "surrogateescape") or header.name), part
            long_name = b""


def _has_content(header: tarfile.TarInfo) -> bool:
    return header.isreg() or header.type in EXTENSIONS or header.type not in tarfile.SUPPORTED_TYPES


def _take(file: io.BytesIO, size: int) -> bytes:
    """Reads the content of a member, which is padded to whole blocks."""
    if size < 0 or len(part := file.read(size)) < size:
        raise ValueError(f"a member of {size:,} bytes is cut off")
    file.seek(-size % tarfile.BLOCKSIZE, io.SEEK_CUR)
    return part


def _extended_name(part: bytes) -> bytes:
    """The name in the records `LENGTH KEY=VALUE` of an extended header; empty if there is none."""
    name, position = b"", 0
    while position < len(part):
        number = part[position : position + 20].partition(b" ")[0]
        end = position + int(number)
        if not position + len(number) < end <= len(part):
            raise ValueError("an extended header is damaged")
        key, _, value = part[position + len(number) + 1 : end - 1].partition(b"=")
        if key.startswith(b"GNU.sparse"):
            raise ValueError("a member is sparse")
        name = value if key == b"path" else name
        position = end
    return name


def _checked(name: str) -> str:
    if len(name) > LONGEST_NAME:
        raise ValueError(f"a name has {len(name):,} characters")
    return name
