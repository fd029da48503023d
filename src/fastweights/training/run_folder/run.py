"""A run folder: what was run, how it went, and the weights."""

import json
import os
import subprocess
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

    And `task.json`, where a task knows much, such as all words of a text.
    """

    path: Path

    @staticmethod
    def unused(recipe: str) -> "Run":
        """A new folder that no other process gets, `runs/RECIPE-DATE-TIME`."""
        stem = f"{recipe}-{datetime.now():%Y-%m-%d-%H%M%S}"
        for number in count(1):
            run = Run(Path("runs") / (f"{stem}-{number}" if number > 1 else stem))
            with suppress(FileExistsError):
                run.path.mkdir(parents=True)
                return run
        raise AssertionError("numbers do not end")

    def exists(self) -> bool:
        """Whether the folder holds a run."""
        return (self.path / CONFIG).is_file()

    def begin(self, recipe: str, config: dict[str, Any], task: dict[str, Any], metric: Metric) -> None:
        """Writes `config.json`: settings, facts of the task and its main metric. `InputError` if the folder holds a run
        already."""
        remedy = "Go on with it by adding --resume, or name another folder."
        require(not self.exists(), "run", "a new folder", f"{self.path}, which holds a run", remedy)
        others = [name for name in (METRICS, LAST, BEST, RESULT) if (self.path / name).exists()]
        require(not others, CONFIG, f"there beside {', '.join(others)}", f"no {self.path / CONFIG}", REMEDY)
        write_long(self.path, task)
        facts = {"metric": metric.stored(), "task": shortened(task), "environment": environment()}
        write_sealed(self.path / CONFIG, {"recipe": recipe, "config": config, **facts})

    def take_over(self, other: FinishedRun, recipe: str, config: dict[str, Any]) -> None:
        """Copies a finished run, as one of another recipe. The configuration, which makes the folder a run, comes
        last."""
        other.copy_to(self.path)
        write_sealed(self.path / CONFIG, {**other.config(), "recipe": recipe, "config": config})

    def copy_to(self, folder: Path) -> None:
        """Copies the curve, the result and the weights into another run folder."""
        passing = (CONFIG, PROGRESS, FAILURE, LOCK)
        for path in (path for path in self.path.rglob("*") if path.is_file() and path.name not in passing):
            copy_atomically(path, folder / path.relative_to(self.path))

    @staticmethod
    def open(path: Path) -> "Run":
        """An existing run; `InputError` if the folder is not one."""
        packed = next((home / RUNS for home in path.parents if path in packed_runs(home)), None)
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
        """The facts of its task, whole; `InputError` if one is lost or damaged."""
        return read_whole(self.path, self.config()["task"])

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other processes from training in this folder; a killed process lets go of it."""
        require(not self.path.exists() or self.path.is_dir(), "run", "a folder", f"the file {self.path}")
        self.path.mkdir(parents=True, exist_ok=True)
        if (self.path / LOCK).is_symlink():  # old versions of filelock empty the file behind a link
            (self.path / LOCK).unlink()
        lock = FileLock(self.path / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise Busy(f"run must be a folder that no other process trains in, got {self.path}.") from None
        try:
            yield
        finally:
            # While it is held: behind it, the file would be another's lock.
            self._leave_no_empty_folder()
            lock.release()

    def _leave_no_empty_folder(self) -> None:
        if not self.exists():
            with suppress(OSError):
                (self.path / LOCK).unlink()
                self.path.rmdir()

    def log(self, **metrics: Any) -> None:
        """Appends a line to `metrics.jsonl`. A result that was written before is no longer the run's."""
        (self.path / RESULT).unlink(missing_ok=True)
        append_sealed(self.path / METRICS, metrics)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, less a last one that a crash cut off; `InputError` if they are not as they were
        written."""
        return read_sealed_lines(self.path / METRICS)

    def metrics_at(self, evaluations: int) -> list[dict[str, Any]]:
        """The lines of the first evaluations, after which there is a checkpoint; `InputError` if one is lost."""
        lines = self.metrics()
        got = f"{self.path / METRICS} with {len(lines)}"
        require(len(lines) >= evaluations, METRICS, f"{evaluations} whole lines", got, REMEDY)
        # A checkpoint follows every evaluation: without any, there can be but one that a crash came after.
        lost = evaluations == 0 and len(lines) > 1
        require(not lost, LAST, f"there after {len(lines)} evaluations", f"no {self.path / LAST}", REMEDY)
        return lines[:evaluations]

    def rewind(self, evaluations: int) -> None:
        """Drops the metrics after so many evaluations: a run that goes on from there writes them again."""
        write_sealed_lines(self.path / METRICS, self.metrics_at(evaluations))

    def write_result(self, result: Result) -> None:
        """Writes `result.json`, with a digest of the metrics."""
        results.write(self.path, result)

    def result(self) -> Result | None:
        """The result in `result.json`; None if training has not ended.

        `InputError` if it, or the metrics, are not as they were written.
        """
        return results.read(self.path) if (self.path / RESULT).exists() else None

    def show_progress(self, step: int, seconds: float) -> None:
        """Writes `progress.json`, for other processes. Nothing is lost with it, so that it need not reach the disk."""
        with suppress(OSError):
            content = json.dumps({"step": step, "seconds": seconds}).encode()
            write_atomically(self.path / PROGRESS, content, durable=False)

    def progress(self) -> tuple[int, float]:
        """The step and the seconds that `show_progress` told last; zeros if that cannot be read."""
        with suppress(InputError, KeyError, TypeError, ValueError, OverflowError):
            told = read_json(read_file(self.path / PROGRESS, PROGRESS, limit=1 << 12), PROGRESS, self.path)
            step, seconds = int(told["step"]), float(told["seconds"])
            if 0 <= step < 1 << 53 and 0 <= seconds < float("inf"):
                return step, seconds
        return 0, 0.0

    def progress_age(self) -> float:
        """Seconds since `show_progress` told anything."""
        try:
            return time.time() - (self.path / PROGRESS).stat().st_mtime
        except OSError:
            return float("inf")


def environment() -> dict[str, Any]:
    """The machine and the software that a measurement was made with."""
    import platform

    import numpy
    import torch

    from fastweights.core.version import __version__

    return {
        "fastweights": __version__,
        "revision": _revision(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    }


def _processor() -> str:
    """The processor as Linux calls it, or what Python knows of it."""
    import platform

    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return platform.processor()


def _revision() -> str:
    """The git revision of the library, with `+` if its files were changed; empty outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
