"""A run folder: what was run, how it went, and the weights."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fastweights.errors import InputError, require
from fastweights.training.files import write_atomically

CONFIG, METRICS, LAST, BEST = "config.json", "metrics.jsonl", "last.safetensors", "best.safetensors"
RESULT, PROGRESS, FAILURE = "result.json", "progress.json", "failure.txt"


class Busy(InputError):
    """Another process trains in the folder."""


@dataclass(frozen=True)
class Run:
    """A folder with `config.json`, `metrics.jsonl`, `last.safetensors` (to resume) and `best.safetensors` (to use)."""

    path: Path

    @staticmethod
    def unused(recipe: str) -> "Run":
        """A folder that is not there yet, `runs/RECIPE-DATE-TIME`."""
        stem = f"{recipe}-{datetime.now():%Y-%m-%d-%H%M%S}"
        taken = sum(1 for _ in Path("runs").glob(f"{stem}*"))
        return Run(Path("runs") / (f"{stem}-{taken + 1}" if taken else stem))

    def exists(self) -> bool:
        """Whether the folder holds a run."""
        return (self.path / CONFIG).is_file()

    def begin(self, recipe: str, config: dict[str, Any], task: dict[str, Any]) -> None:
        """Writes what is going to be run; `InputError` if the folder holds a run already."""
        remedy = "Go on with it by adding --resume, or name another folder."
        require(not self.exists(), "run", "a new folder", f"{self.path}, which holds a run", remedy)
        content = {"recipe": recipe, "config": config, "task": task, "environment": environment()}
        write_atomically(self.path / CONFIG, json.dumps(content, indent=2, ensure_ascii=False).encode())

    @staticmethod
    def open(path: Path) -> "Run":
        """An existing run; `InputError` if the folder is not one."""
        remedy = "A run folder is made by 'fastweights train'."
        require(Run(path).exists(), "run", f"a folder with a {CONFIG}", f"'{path}'", remedy)
        return Run(path)

    def config(self) -> dict[str, Any]:
        """The content of `config.json`."""
        requirement = f"a folder with a readable {CONFIG}"
        try:
            content = json.loads((self.path / CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"run must be {requirement}, got {self.path}: {error}.") from None
        parts = [content.get(part) for part in ("config", "task")] if isinstance(content, dict) else [None]
        require(all(isinstance(part, dict) for part in parts), "run", requirement, str(self.path))
        return dict(content)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other processes from training in this folder; a killed process lets go of it."""
        require(not self.path.exists() or self.path.is_dir(), "run", "a folder", f"the file {self.path}")
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise Busy(f"run must be a folder nobody else trains in, got {self.path}.") from None
        try:
            yield
        finally:
            lock.release()
            self._leave_no_empty_folder()

    def _leave_no_empty_folder(self) -> None:
        if not self.exists():
            (self.path / ".lock").unlink(missing_ok=True)
            with suppress(OSError):
                self.path.rmdir()

    def log(self, **metrics: Any) -> None:
        """Appends a line to `metrics.jsonl`."""
        with (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, less a last one that a crash cut off."""
        path = self.path / METRICS
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            return [json.loads(line) for line in text.split("\n")[:-1]]
        except ValueError as error:
            raise InputError(f"metrics must be lines of JSON, got {path}: {error}.") from None

    def write_result(self, result: dict[str, Any]) -> None:
        """Writes `result.json`."""
        write_atomically(self.path / RESULT, json.dumps(result, indent=2).encode())

    def result(self) -> dict[str, Any] | None:
        """The content of `result.json`; None if the run has not come to its end, or the file is damaged."""
        return self._read(RESULT)

    def show_progress(self, step: int, seconds: float) -> None:
        """Tells other processes how far the run is. Nothing is lost with it, so that it need not reach the disk."""
        with suppress(OSError):
            (self.path / PROGRESS).write_text(json.dumps({"step": step, "seconds": seconds}), encoding="utf-8")

    def progress(self) -> dict[str, Any] | None:
        """What `show_progress` told last."""
        return self._read(PROGRESS)

    def progress_age(self) -> float:
        """Seconds since `show_progress` told anything."""
        try:
            return time.time() - (self.path / PROGRESS).stat().st_mtime
        except OSError:
            return float("inf")

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def rewind(self, step: int) -> None:
        """Drops the metrics after a step: a run that goes on from there writes them again."""
        kept = [json.dumps(line) + "\n" for line in self.metrics() if line["step"] <= step]
        write_atomically(self.path / METRICS, "".join(kept).encode())


def environment() -> dict[str, Any]:
    """The machine and the software that a measurement was made with."""
    import platform

    import numpy
    import torch

    import fastweights

    return {
        "fastweights": fastweights.__version__,
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
