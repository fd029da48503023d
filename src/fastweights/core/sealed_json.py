"""JSON with a digest, so that a change is detected: settings, metrics and results of a run."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from fastweights.core.errors import require
from fastweights.core.files import appending, read_file, read_json, write_atomically

SEAL = "sha256"
LONGEST_LINE = 1 << 16
REMEDY = "Restore it, or begin again in another folder."


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Writes an object with a digest of itself, atomically."""
    text = json.dumps(seal(content), indent=2, ensure_ascii=False)
    # Names of files that are not UTF-8 contain lone surrogates, which become escapes of JSON.
    write_atomically(path, text.encode(errors="backslashreplace"))


def read_sealed(path: Path) -> dict[str, Any]:
    """Reads an object of `write_sealed`; `InputError` if the file is missing or changed."""
    content = read_json(read_file(path, path.name, limit=1 << 23), path.name, path)
    return unseal(content, "", path.name, path)


def append_sealed(path: Path, line: Mapping[str, Any]) -> None:
    """Appends a line to a file of sealed lines. Its digest covers all earlier lines, so that none can be lost."""
    with appending(path, path.name) as file:
        file.write(f"{json.dumps(seal(line, _last_seal(file, path)))}\n".encode())
        file.flush()
        # A checkpoint that is written later must not outlive it.
        os.fsync(file.fileno())


def read_sealed_lines(path: Path) -> list[dict[str, Any]]:
    """Reads the lines of `append_sealed`, without a last one that a crash truncated; none if there is no file.

    `InputError` if any was changed, moved or taken out, but for the last ones.
    """
    if not path.exists():
        return []
    content = read_file(path, path.name, limit=1 << 26)
    lines: list[dict[str, Any]] = []
    before = ""
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        record = read_json(line, path.name, f"{path}, line {number}")
        lines.append(unseal(record, before, path.name, f"{path}, line {number},"))
        before = record[SEAL]
    return lines


def write_sealed_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Replaces a file of sealed lines, atomically."""
    texts, before = [], ""
    for line in lines:
        sealed = seal(line, before)
        texts.append(json.dumps(sealed) + "\n")
        before = sealed[SEAL]
    write_atomically(path, "".join(texts).encode())


def seal(content: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The content with a digest of itself and of the seal of the line before it."""
    # As it will be read: JSON turns keys into strings and tuples into lists.
    plain = json.loads(json.dumps(content))
    text = before + json.dumps(plain)
    return {**plain, SEAL: hashlib.sha256(text.encode()).hexdigest()}


def unseal(sealed: Any, before: str, parameter: str, got: object) -> dict[str, Any]:
    """The content of a sealed object; `InputError` if it was changed or follows another line."""
    content = {key: value for key, value in sealed.items() if key != SEAL} if isinstance(sealed, dict) else {}
    intact = isinstance(sealed, dict) and seal(content, before)[SEAL] == sealed.get(SEAL)
    require(intact, parameter, "unchanged since fastweights wrote it", f"{got} with changed content", REMEDY)
    return content


def _last_seal(file: BinaryIO, path: Path) -> str:
    """The seal of the last line, or an empty string. Only the end of the file is read, so that the time is constant."""
    file.seek(max(file.seek(0, os.SEEK_END) - LONGEST_LINE, 0))
    last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    return str(read_json(last, path.name, path)[SEAL]) if last else ""
