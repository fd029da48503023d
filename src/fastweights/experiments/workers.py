"""Worker processes that execute runs in parallel: on this machine, or as jobs of SLURM."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from fastweights.core.errors import InputError, invalid
from fastweights.core.files import appending, make_own_folder

# torch takes seconds to import, and a process must detect earlier that its parent has ended.
if TYPE_CHECKING:
    from fastweights.experiments.plan import Plan

PROGRAM = "import sys; sys.path[:] = {path!r}; from fastweights.experiments.workers import main; main()"


class Worker(Protocol):
    """A process that executes runs that no other process has started."""

    def done(self) -> bool:
        """Whether it has ended."""

    def stop(self) -> None:
        """Requests a checkpoint and the end of the process."""

    def failure(self) -> str:
        """The reason of an unexpected end; empty if there was none."""


class Local:
    """A process of this machine. It ends with its parent, since any end of the parent closes their pipe."""

    def __init__(self, plan: "Plan", number: int, threads: int) -> None:
        self.log = make_own_folder(plan.path / "jobs") / f"{number}.log"
        # -P and the path of this process, so that nothing else is imported from the current folder.
        command = [sys.executable, "-P", "-c", PROGRAM.format(path=sys.path), json.dumps([_facts(plan), threads])]
        with appending(self.log, "log") as log:
            # A new session does not receive Ctrl-C; the parent forwards the request.
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def done(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def failure(self) -> str:
        status = self.process.wait()
        return f"exit status {status}, see {self.log}" if status else ""


@dataclass(frozen=True)
class SlurmJob:
    """The job of submitit. After a time-out it continues in a new job, from the last checkpoints."""

    plan: "Plan"

    def __call__(self) -> None:
        from fastweights.experiments.run_jobs import work

        work(self.plan, threads=0)

    def checkpoint(self) -> Any:
        """The job that submitit starts after a time-out."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class Slurm:
    """A job of SLURM, which continues after the end of the process that started it."""

    def __init__(self, job: Any) -> None:
        self.job = job
        self.stopped = False

    def done(self) -> bool:
        # A job with a request to stop needs no waiting, since it writes its checkpoint by itself.
        return self.stopped or bool(self.job.done())

    def stop(self) -> None:
        self.job.cancel(check=False)
        self.stopped = True

    def failure(self) -> str:
        error = self.job.exception()
        return "" if error is None else str(error)


def start(plan: "Plan", processes: int, cluster: str) -> list[Worker]:
    """Starts `processes` processes, but no more than there are runs."""
    processes = min(processes, len(plan.jobs))
    if cluster == "local":
        threads = max(len(os.sched_getaffinity(0)) // processes, 1)
        return [Local(plan, number, threads) for number in range(1, processes + 1)]
    executor = _executor(plan, cluster)
    # A cluster assigns cores to its jobs, which torch then uses.
    return [Slurm(executor.submit(SlurmJob(plan))) for _ in range(processes)]


def main() -> None:
    """The main function of a `Local` process."""
    Thread(target=_stop_with_parent, daemon=True).start()
    facts, threads = json.loads(sys.argv[1])
    from fastweights.experiments.plan import Plan
    from fastweights.experiments.run_jobs import work
    from fastweights.training.progress import Interrupted
    from fastweights.training.settings._training import Hardware

    with suppress(Interrupted):
        chosen = {part: tuple(facts[part]) for part in ("models", "columns")}
        where = Hardware(*facts["where"])
        work(Plan(**{**facts, **chosen, "where": where, "folder": Path(facts["folder"])}), threads)


def _stop_with_parent() -> None:
    # Not sys.stdin, whose lock Python needs at exit.
    while os.read(0, 1):
        pass
    # In training this requests a stop after a checkpoint; at any other time nothing is lost.
    os.kill(os.getpid(), signal.SIGTERM)


def _facts(plan: "Plan") -> dict[str, Any]:
    return {**asdict(plan), "folder": str(plan.folder)}


def _executor(plan: "Plan", cluster: str) -> Any:
    try:
        import submitit
    except ModuleNotFoundError:
        remedy = "pip install 'fastweights[cluster]', or leave out --cluster."
        raise invalid("cluster", "local where submitit is not installed", cluster, remedy) from None
    try:
        executor = submitit.AutoExecutor(folder=plan.path / "jobs", cluster=cluster)
    except RuntimeError as error:
        raise InputError(f"cluster must be reachable from this machine, got '{cluster}': {error}.") from None
    executor.update_parameters(name=plan.name.replace("/", "-"), timeout_min=24 * 60)
    return executor
