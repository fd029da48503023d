"""JSON that tells whether it is as it was written: what a run is, how it went, what it came to."""

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
    # Names of files that are not UTF-8 come as lone surrogates, of which this makes the escapes of JSON.
    write_atomically(path, text.encode(errors="backslashreplace"))


def read_sealed(path: Path) -> dict[str, Any]:
    """What `write_sealed` wrote; `InputError` if the file is missing or anything in it was changed."""
    content = read_json(read_file(path, path.name, limit=1 << 23), path.name, path)
    return unseal(content, "", path.name, path)


def append_sealed(path: Path, line: Mapping[str, Any]) -> None:
    """Adds a line to a file of sealed lines. Its digest covers all lines before it, so that none can be lost."""
    with appending(path, path.name) as file:
        file.write(f"{json.dumps(seal(line, _last_seal(file, path)))}\n".encode())
        file.flush()
        # A checkpoint that is written later must not outlive it.
        os.fsync(file.fileno())


def read_sealed_lines(path: Path) -> list[dict[str, Any]]:
    """The lines that `append_sealed` wrote, less a last one that a crash cut off; none if there is no file.

    `InputError` if any was changed, moved or taken out, but for the last ones.
    """
    if not path.exists():
        return []
    content = read_file(path, path.name, limit=1 << 26)
    lines: list[dict[str, Any]] = []
    before = ""
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        found = read_json(line, path.name, f"{path}, line {number}")
        lines.append(unseal(found, before, path.name, f"{path}, line {number},"))
        before = found[SEAL]
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
    """The content with a digest of itself, and of what came before it."""
    # As it will be read: keys are strings then, and tuples are lists.
    plain = json.loads(json.dumps(content))
    text = before + json.dumps(plain)
    return {**plain, SEAL: hashlib.sha256(text.encode()).hexdigest()}


def unseal(sealed: Any, before: str, parameter: str, got: object) -> dict[str, Any]:
    """The content that was sealed; `InputError` if it is not the same, or came after something else."""
    content = {key: value for key, value in sealed.items() if key != SEAL} if isinstance(sealed, dict) else {}
    intact = isinstance(sealed, dict) and seal(content, before)[SEAL] == sealed.get(SEAL)
    require(intact, parameter, "as fastweights wrote it", f"{got} with changed content", REMEDY)
    return content


def _last_seal(file: BinaryIO, path: Path) -> str:
    """The seal of the last line, empty without one. Only the end is read: all lines at every line would take ever
    longer."""
    file.seek(max(file.seek(0, os.SEEK_END) - LONGEST_LINE, 0))
    last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    return str(read_json(last, path.name, path)[SEAL]) if last else ""
