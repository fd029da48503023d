"""Files that are written atomically, and files from untrusted sources."""

import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from fastweights.core.errors import InputError, invalid, require

try:
    import fcntl
except ImportError:  # Windows, where a file that is open cannot be removed
    fcntl = None  # type: ignore[assignment]

LARGEST = 1 << 30
"""Maximum size of a file in bytes, unless the caller expects less."""

UNBLOCKED = ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOCTTY")
"""Flags to open a path that may be a pipe or a device."""

DEEPEST = 20
"""Maximum nesting of lists and objects in JSON. The library's own files use five levels."""


def write_atomically(path: Path, content: bytes, durable: bool = True) -> None:
    """Replaces `path` by `content`. A crash or a full disk leaves the old file as it was.

    A symbolic link or a named pipe at `path` is replaced, never followed or opened. A killed process leaves a file
    `.NAME.*.tmp`, which the next process that writes `path` removes.

    Args:
        path: The file. Missing folders above it are created.
        content: The whole content.
        durable: Whether the content must survive a power failure.
    """
    with _replacing(path, durable) as file:
        file.write(content)


def copy_atomically(source: Path, path: Path) -> None:
    """Replaces `path` by the content of the regular file `source`, of any size."""
    with _opened(source, "file") as read, _replacing(path) as file:
        shutil.copyfileobj(read, file)


@contextmanager
def appending(path: Path, parameter: str) -> Iterator[BinaryIO]:
    """Opens a regular file for reading and appending; creates it if it is missing.

    A symbolic link at `path` is removed, never followed. `InputError` for anything else that is not a regular file.
    """
    if path.is_symlink():
        path.unlink()
    if path.exists():
        require_regular(path, parameter)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", *UNBLOCKED))
    with os.fdopen(os.open(path, flags, 0o666), "a+b") as file:
        yield file


def make_own_folder(path: Path) -> Path:
    """Creates a folder of the library and its parents. A symbolic link in its place is removed."""
    if path.is_symlink():
        path.unlink()
    path.mkdir(parents=True, exist_ok=True)
    return path


def read_file(path: Path, parameter: str, limit: int = LARGEST) -> bytes:
    """The content of a regular file of at most `limit` bytes; `InputError` for anything else.

    The path may come from an untrusted source: a named pipe would block, and a device has no end.
    """
    with _opened(path, parameter) as file:
        size = os.fstat(file.fileno()).st_size
        require(size <= limit, parameter, f"a file of at most {limit:,} bytes", f"{path} with {size:,}")
        try:
            # Bytes that another process appends meanwhile are not read.
            return file.read(size) or b""
        except OSError as error:
            raise _unreadable(parameter, path, error) from None


def read_text(path: Path, parameter: str) -> str:
    """The text of a UTF-8 file, as `decoded` reads it."""
    return decoded(read_file(path, parameter), parameter, path)


def decoded(content: bytes, parameter: str, got: object) -> str:
    """Decodes UTF-8, without a byte order mark and with "\\n" for every kind of line end.

    Args:
        content: The bytes of a file, or of a part of an archive.
        parameter: The name of the parameter, for error messages.
        got: The name of the file, for error messages.

    Raises:
        InputError: the content is not UTF-8, has a zero byte, or has no characters but blanks.
    """
    text = unicode_of(content, parameter, got)
    require("\0" not in text, parameter, "a text without zero bytes", f"{got}, which has a zero byte")
    text = normalised(text)
    require(text.strip() != "", parameter, "a file that is not empty", f"the empty {got}")
    return text


def unicode_of(content: bytes, parameter: str, got: object) -> str:
    """Decodes UTF-8 unchanged; `InputError` with the position of the first invalid byte."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        remedy = "Convert it, for example with iconv."
        raise InputError(f"{parameter} must be UTF-8, got {got} with a bad byte at {error.start}. {remedy}") from None


def normalised(text: str) -> str:
    """A text without a byte order mark, and with "\\n" for every line end.

    >>> normalised("\\ufeffone\\r\\ntwo\\rthree\\n")
    'one\\ntwo\\nthree\\n'
    """
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def require_regular(path: Path, parameter: str) -> None:
    """`InputError` unless `path` is a regular file."""
    try:
        _require_regular(os.stat(path), parameter, path)
    except OSError as error:
        raise _unreadable(parameter, path, error) from None


def read_json(content: bytes | str, parameter: str, got: object) -> Any:
    """Parses UTF-8 JSON; `InputError` for anything else, and for more than `DEEPEST` levels of nesting."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{parameter} must be JSON, got {got}: {error}.") from None
    _require_flat(value, parameter, got)
    return value


def cache_folder() -> Path:
    """The folder `fastweights` in the user's cache folder, for files that can be built or downloaded again."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # A relative path is to be ignored: https://specifications.freedesktop.org/basedir-spec/latest/
        return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "fastweights"
    except RuntimeError as error:
        raise InputError(f"XDG_CACHE_HOME must be a folder where the user has no home, got {home!r}: {error}") from None


def make_private(folder: Path) -> None:
    """Creates a folder and its missing parents, readable by this user alone."""
    for path in (*reversed(folder.parents), folder):
        if not path.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)


def _require_regular(status: os.stat_result, parameter: str, path: Path) -> None:
    require(stat.S_ISREG(status.st_mode), parameter, "a regular file", path)


def _unreadable(parameter: str, path: Path, error: OSError) -> InputError:
    return InputError(f"{parameter} must be a readable file, got {path}: {error.strerror or error}.")


def _require_flat(value: Any, parameter: str, got: object) -> None:
    # Level by level: recursion could overflow the stack, here and in the functions that read the value later.
    level = [value]
    for _ in range(DEEPEST):
        level = [part for whole in level for part in _parts(whole)]
        if not level:
            return
    raise invalid(parameter, f"JSON of at most {DEEPEST} levels", got)


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


@contextmanager
def _opened(path: Path, parameter: str) -> Iterator[BinaryIO]:
    """Opens a regular file for reading; `InputError` for anything else."""
    try:
        _require_regular(os.stat(path), parameter, path)
        flags = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in UNBLOCKED)
        descriptor = os.open(path, flags)
    except OSError as error:
        raise _unreadable(parameter, path, error) from None
    with os.fdopen(descriptor, "rb") as file:
        # Another file may have replaced it meanwhile.
        _require_regular(os.fstat(file.fileno()), parameter, path)
        yield file


@contextmanager
def _replacing(path: Path, durable: bool = True) -> Iterator[BinaryIO]:
    """Opens a temporary file that replaces `path` at the end, unless an error occurs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    try:
        with _temporary(path) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # an open file cannot be renamed there
            os.replace(file.name, path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        # The error of a full disk names no file, and the name of the temporary file would not help.
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def _temporary(path: Path) -> Iterator[BinaryIO]:
    """Creates a file next to `path` and locks it while it is written.

    The lock shows other processes that the writer is alive, even on another machine of a shared file system.
    """
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        with temporary.open("xb") as file:
            try:
                with suppress(OSError):  # a file system without locks
                    _lock(file, wait=True)
                # Another process may have taken it for a leftover before it was locked.
                if temporary.exists():
                    yield file
                    return
            finally:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)


def _lock(file: BinaryIO, wait: bool) -> None:
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_leftovers(path: Path) -> None:
    """Removes the temporary files of `path` whose writers were killed."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.tmp")
    for name in filter(pattern.fullmatch, os.listdir(path.parent)):
        leftover = path.with_name(name)
        with suppress(OSError):
            if stat.S_ISREG(leftover.lstat().st_mode):
                with leftover.open("r+b") as file:
                    _lock(file, wait=False)
                    leftover.unlink()


def _sync_folder(path: Path) -> None:
    """Makes the new name durable: otherwise a power failure could restore the old file."""
    with suppress(OSError):  # Windows opens no folders
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
