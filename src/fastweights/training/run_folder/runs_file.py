"""A file of finished runs, `runs.jsonl`: one line per run with settings, result and curve, without weights.

A line is a JSON object with a SHA-256 digest of itself. Lines are ordered by run folder, so that a new run is one new
line in a diff.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from fastweights.core.errors import InputError, require
from fastweights.core.files import read_file, read_json, write_atomically
from fastweights.core.sealed_json import seal, unseal, write_sealed_lines
from fastweights.training.run_folder import result as results
from fastweights.training.run_folder.finished_run import FinishedRun, require_config
from fastweights.training.run_folder.result import Result

RUNS, LOCK = "runs.jsonl", ".runs.lock"
FOLDER, RESULT, METRICS = "folder", "result", "metrics"
"""Keys of a line in addition to those of `config.json`."""


@dataclass(frozen=True)
class PackedRun:
    """A finished run in a file of runs.

    Args:
        path: Run folder that the run was packed from. It need not exist.
        content: Line of the file without its digest.
    """

    path: Path
    content: dict[str, Any]

    @staticmethod
    def of(run: FinishedRun, parent: Path) -> "PackedRun":
        """A finished run as a line of the file in the folder `parent`."""
        result = run.result()
        require(result is not None, "run", "finished", f"{run.path}, which is not")
        assert result is not None
        folder = {FOLDER: run.path.relative_to(parent).as_posix()}
        return PackedRun(run.path, {**folder, **run.config(), RESULT: asdict(result), METRICS: run.metrics()})

    def config(self) -> dict[str, Any]:
        """Recipe, and objects of its config, its task and its environment."""
        return {name: part for name, part in self.content.items() if name not in (FOLDER, RESULT, METRICS)}

    def metrics(self) -> list[dict[str, Any]]:
        """One object per evaluation."""
        lines: list[dict[str, Any]] = self.content[METRICS]
        return lines

    def result(self) -> Result:
        """Result of the run."""
        return Result(**self.content[RESULT])

    def copy_to(self, folder: Path) -> None:
        """Writes the curve and the result into a run folder."""
        write_sealed_lines(folder / results.METRICS, self.metrics())
        results.write(folder, self.result())


def read_runs(path: Path) -> list[PackedRun]:
    """The runs in a file.

    Raises:
        InputError: The file is cut off, a line was changed, or two lines have the same run folder.
    """
    *lines, rest = read_file(path, RUNS).split(b"\n")
    require(rest == b"", RUNS, "a file of complete lines", f"{path}, which is cut off", "Restore the file.")
    runs = [_parse(line, path, f"{path}, line {number},") for number, line in enumerate(lines, start=1)]
    folders = {run.path for run in runs}
    require(len(folders) == len(runs), RUNS, "one line per run", f"{path} with the same run twice", "Delete one line.")
    return runs


def write_runs(path: Path, runs: Iterable[PackedRun]) -> None:
    """Replaces a file of runs, atomically."""
    ordered = sorted(runs, key=lambda run: _natural(run.content[FOLDER]))
    lines = "".join(f"{json.dumps(seal(run.content), ensure_ascii=False)}\n" for run in ordered)
    # Names of files that are not UTF-8 have lone surrogates, which become escapes of JSON.
    write_atomically(path, lines.encode(errors="backslashreplace"))


def add_runs(path: Path, runs: Iterable[FinishedRun]) -> None:
    """Adds runs to a file, or replaces those of the same run folder. Several processes may add at the same time.

    Raises:
        InputError: The file is damaged. It does not change.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(LOCK)):
        before = {run.path: run for run in (read_runs(path) if path.exists() else ())}
        write_runs(path, {**before, **{run.path: PackedRun.of(run, path.parent) for run in runs}}.values())


def packed_runs(folder: Path) -> dict[Path, PackedRun]:
    """The runs in the file of a folder, by run folder; none if there is no file. `InputError` if it is damaged."""
    return _by_path(folder / RUNS, _version(folder / RUNS))


@lru_cache(maxsize=128)
def _by_path(path: Path, version: tuple[int, int] | None) -> dict[Path, PackedRun]:
    return {run.path: run for run in read_runs(path)} if version else {}


def _version(path: Path) -> tuple[int, int] | None:
    """Time and size of a file, by which a cache detects changes; None if there is no file."""
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    return None


def _parse(line: bytes, path: Path, got: str) -> PackedRun:
    content = unseal(read_json(line, RUNS, got), "", RUNS, got)
    require_config(content, RUNS, got)
    folder = content.get(FOLDER)
    inside = isinstance(folder, str) and not Path(folder).is_absolute() and ".." not in Path(folder).parts
    require(inside, FOLDER, "a path below the file", f"{folder!r} in {got.rstrip(',')}")
    lines = content.get(METRICS)
    curve = isinstance(lines, list) and all(isinstance(one, dict) for one in lines)
    require(curve, METRICS, "a list of evaluations", f"something else in {got.rstrip(',')}")
    try:
        Result(**content[RESULT])
    except (KeyError, TypeError, InputError) as error:
        raise InputError(f"{RUNS} must have a result in each line, got {got} with another: {error}") from None
    return PackedRun(path.parent / str(folder), content)


def _natural(folder: str) -> list[tuple[str, int]]:
    """Sort key with seed-10 after seed-9."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d{0,9})", folder)]
