"""A run folder: configuration, metrics, checkpoints and result."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fastweights.core.errors import InputError, require
from fastweights.core.files import copy_atomically, read_file, read_json, write_atomically
from fastweights.core.metric import Metric
from fastweights.core.sealed_json import (
    REMEDY,
    append_sealed,
    read_sealed,
    read_sealed_lines,
    write_sealed,
    write_sealed_lines,
)
from fastweights.training.run_folder import result as results
from fastweights.training.run_folder.environment import environment
from fastweights.training.run_folder.finished_run import FinishedRun, require_config
from fastweights.training.run_folder.result import METRICS, RESULT, Result
from fastweights.training.run_folder.runs_file import RUNS, packed_runs
from fastweights.training.run_folder.task_metadata import read_whole, shortened, write_long

CONFIG, LAST, BEST = "config.json", "last.safetensors", "best.safetensors"
PROGRESS, FAILURE, LOCK = "progress.json", "failure.txt", ".lock"


class Busy(InputError):
    """Another process trains in the folder."""


@dataclass(frozen=True)
class Run:
    """A folder with `config.json`, `metrics.jsonl`, `last.safetensors` (to resume) and `best.safetensors` (to use).

    Tasks with long metadata, such as all words of a text, also have `task.json`.
    """

    path: Path

    @staticmethod
    def unused(recipe: str) -> "Run":
        """A new folder `runs/RECIPE-DATE-TIME`, different for every process."""
        stem = f"{recipe}-{datetime.now():%Y-%m-%d-%H%M%S}"
        for number in count(1):
            run = Run(Path("runs") / (f"{stem}-{number}" if number > 1 else stem))
            with suppress(FileExistsError):
                run.path.mkdir(parents=True)
                return run
        raise AssertionError("numbers do not end")

    def exists(self) -> bool:
        """Whether the folder is a run."""
        return (self.path / CONFIG).is_file()

    def begin(self, recipe: str, config: dict[str, Any], task: dict[str, Any], metric: Metric) -> None:
        """Writes `config.json`: the settings, metadata of the task, and its main metric.

        Raises:
            InputError: The folder is a run already.
        """
        remedy = "Resume it with --resume, or name another folder."
        require(not self.exists(), "run", "a new folder", f"{self.path}, which holds a run", remedy)
        others = [name for name in (METRICS, LAST, BEST, RESULT) if (self.path / name).exists()]
        require(not others, CONFIG, f"present next to {', '.join(others)}", f"no {self.path / CONFIG}", REMEDY)
        write_long(self.path, task)
        facts = {"metric": metric.stored(), "task": shortened(task), "environment": environment()}
        write_sealed(self.path / CONFIG, {"recipe": recipe, "config": config, **facts})

    def take_over(self, other: FinishedRun, recipe: str, config: dict[str, Any]) -> None:
        """Copies a finished run, as one of another recipe. The last file is `config.json`, which makes it a run."""
        other.copy_to(self.path)
        write_sealed(self.path / CONFIG, {**other.config(), "recipe": recipe, "config": config})

    def copy_to(self, folder: Path) -> None:
        """Copies the curve, the result and the weights into another run folder."""
        without = (CONFIG, PROGRESS, FAILURE, LOCK)
        for path in (path for path in self.path.rglob("*") if path.is_file() and path.name not in without):
            copy_atomically(path, folder / path.relative_to(self.path))

    @staticmethod
    def open(path: Path) -> "Run":
        """An existing run; `InputError` if the folder is not one."""
        packed = next((parent / RUNS for parent in path.parents if path in packed_runs(parent)), None)
        remedy = "A run folder is made by 'fastweights train'."
        if packed is not None:
            remedy = f"{packed} has its settings and its result, but no weights."
        require(Run(path).exists(), "run", f"a folder with a {CONFIG}", f"'{path}'", remedy)
        return Run(path)

    def config(self) -> dict[str, Any]:
        """The content of `config.json`: the recipe, and objects of its config, its task and its environment."""
        content = read_sealed(self.path / CONFIG)
        require_config(content, CONFIG, self.path / CONFIG)
        return content

    def task(self) -> dict[str, Any]:
        """The metadata of the task; `InputError` if a part is missing or damaged."""
        return read_whole(self.path, self.config()["task"])

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the folder for other processes. The lock ends with the process, even if it is killed."""
        require(not self.path.exists() or self.path.is_dir(), "run", "a folder", f"the file {self.path}")
        self.path.mkdir(parents=True, exist_ok=True)
        if (self.path / LOCK).is_symlink():  # old versions of filelock empty the file behind a link
            (self.path / LOCK).unlink()
        lock = FileLock(self.path / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise Busy(f"run must be a folder that no other process uses, got {self.path}.") from None
        try:
            yield
        finally:
            # Before the release: afterwards the file may be the lock of another process.
            self._remove_empty_folder()
            lock.release()

    def _remove_empty_folder(self) -> None:
        if not self.exists():
            with suppress(OSError):
                (self.path / LOCK).unlink()
                self.path.rmdir()

    def log(self, **metrics: Any) -> None:
        """Appends a line to `metrics.jsonl`, and deletes an earlier result, which is outdated."""
        (self.path / RESULT).unlink(missing_ok=True)
        append_sealed(self.path / METRICS, metrics)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, without a last line that a crash cut off; `InputError` if one was changed."""
        return read_sealed_lines(self.path / METRICS)

    def metrics_at(self, evaluations: int) -> list[dict[str, Any]]:
        """The lines of the evaluations before a checkpoint; `InputError` if one is missing."""
        lines = self.metrics()
        got = f"{self.path / METRICS} with {len(lines)}"
        require(len(lines) >= evaluations, METRICS, f"{evaluations} whole lines", got, REMEDY)
        # A checkpoint follows every evaluation. Without a checkpoint, a crash came after the first evaluation.
        lost = evaluations == 0 and len(lines) > 1
        require(not lost, LAST, f"present after {len(lines)} evaluations", f"no {self.path / LAST}", REMEDY)
        return lines[:evaluations]

    def rewind(self, evaluations: int) -> None:
        """Drops the metrics after a number of evaluations. A run that resumes there writes them again."""
        write_sealed_lines(self.path / METRICS, self.metrics_at(evaluations))

    def write_result(self, result: Result) -> None:
        """Writes `result.json`, with a digest of the metrics."""
        results.write(self.path, result)

    def result(self) -> Result | None:
        """The result in `result.json`; None if training has not ended.

        Raises:
            InputError: The result or the metrics were changed.
        """
        return results.read(self.path) if (self.path / RESULT).exists() else None

    def show_progress(self, step: int, seconds: float) -> None:
        """Writes `progress.json`, for the display of other processes. A loss of this file does no harm."""
        with suppress(OSError):
            content = json.dumps({"step": step, "seconds": seconds}).encode()
            write_atomically(self.path / PROGRESS, content, durable=False)

    def progress(self) -> tuple[int, float]:
        """Step and seconds of the last `show_progress`; zeros if the file cannot be read."""
        with suppress(InputError, KeyError, TypeError, ValueError, OverflowError):
            content = read_json(read_file(self.path / PROGRESS, PROGRESS, limit=1 << 12), PROGRESS, self.path)
            step, seconds = int(content["step"]), float(content["seconds"])
            if 0 <= step < 1 << 53 and 0 <= seconds < float("inf"):
                return step, seconds
        return 0, 0.0

    def progress_age(self) -> float:
        """Seconds since the last `show_progress`."""
        try:
            return time.time() - (self.path / PROGRESS).stat().st_mtime
        except OSError:
            return float("inf")
