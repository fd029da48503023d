"""Carries out all runs of an experiment, in any number of processes that meet in one folder.

Every process does the same: it takes the first run that is not finished and that nobody else has locked. So runs are
shared out by themselves, none is done twice, and what a killed process left is taken up by another.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.live import Live
from rich.table import Table

from fastweights.catalogue import EXPERIMENTS
from fastweights.errors import InputError, require, require_name
from fastweights.experiment import Experiment
from fastweights.recipes._trial import Job, carry_out, outcome
from fastweights.training.loop import Interrupted
from fastweights.training.progress import stop_on_signal
from fastweights.training.run import FAILURE, Busy

PATIENCE = 1.0
"""Seconds until one looks again whether another process has let go of a run."""

ALIVE = 60.0
"""Seconds without news after which a run no longer counts as running in the table."""


@dataclass(frozen=True)
class Plan:
    """What to reproduce, and where."""

    name: str
    preset: str
    folder: Path
    models: tuple[str, ...]
    seeds: int

    @property
    def experiment(self) -> Experiment:
        experiment: Experiment = EXPERIMENTS.load(self.name)
        return experiment

    @property
    def path(self) -> Path:
        """The folder of this experiment and preset."""
        return self.folder / self.name / self.preset

    @property
    def jobs(self) -> list[Job]:
        """All models with the first seed, then with the next: the table fills evenly."""
        places = [(m, c) for m, c in self.experiment.preset(self.preset).places if m in self.models]
        return [Job(self.name, self.preset, m, c, seed) for seed in range(1, self.seeds + 1) for m, c in places]


def make_plan(name: str, preset: str, folder: Path, models: list[str] | None, seeds: int | None) -> Plan:
    """The plan that the flags describe; `InputError` for what there is not."""
    experiment: Experiment = EXPERIMENTS.load(name)
    default = experiment.preset(preset)
    for model in models or ():
        require_name("models", model, default.models)
    require(seeds is None or seeds >= 1, "seeds", "at least 1", seeds)
    chosen = tuple(model for model in default.models if models is None or model in models)
    return Plan(name, preset, folder, chosen, default.seeds if seeds is None else seeds)


def reproduce(plan: Plan, jobs: int, cluster: str, console: Console) -> bool:
    """Carries out what is missing and shows how it goes; whether all runs have come to their end.

    Raises:
        Interrupted: Ctrl-C or SIGTERM, after a checkpoint of every run.
    """
    require(jobs >= 1, "jobs", "at least 1", jobs)
    began = time.time()
    with _shown(plan, console, began):
        if jobs == 1 and cluster == "local":
            work(plan, threads=0)
        else:
            _work_elsewhere(plan, jobs, cluster, console)
    statuses = {job: status(job, plan, began) for job in plan.jobs}
    for job, found in statuses.items():
        if found.failure:
            console.print(f"{job.model}, {job.column}, seed {job.seed}: {found.failure}", style="red", highlight=False)
    return all(found.state == "finished" for found in statuses.values())


def work(plan: Plan, threads: int) -> None:
    """Carries out whatever is free until nothing is left. A run that fails is tried once, and does not stop others."""
    if threads:
        torch.set_num_threads(threads)
    began, tried = time.time(), set[Job]()
    while left := [job for job in plan.jobs if job not in tried and not _is_over(job, plan, began)]:
        attempted = {job for job in left if _attempt(job, plan)}
        tried |= attempted
        if not attempted:
            time.sleep(PATIENCE)


@dataclass(frozen=True)
class Worker:
    """`work`, as submitit takes it: a process whose time is up goes on in a new one, from the last checkpoints."""

    plan: Plan
    threads: int

    def __call__(self) -> None:
        work(self.plan, self.threads)

    def checkpoint(self) -> Any:
        """What submitit is to start again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _is_over(job: Job, plan: Plan, began: float) -> bool:
    return status(job, plan, began).state in ("finished", "failed")


def _attempt(job: Job, plan: Plan) -> bool:
    """False if another process is at it."""
    try:
        carry_out(job, plan.experiment, plan.folder)
    except Busy:
        return False
    except (InputError, OSError, RuntimeError) as error:
        with suppress(OSError):
            (job.run(plan.folder).path / FAILURE).write_text(" ".join(str(error).split()), encoding="utf-8")
    return True


def _work_elsewhere(plan: Plan, processes: int, cluster: str, console: Console) -> None:
    """As many processes as wanted, here or as jobs of SLURM, and waits for them."""
    executor = _executor(plan, processes, cluster)
    # A cluster gives its jobs cores of their own, and torch takes those that it is given.
    threads = max(len(os.sched_getaffinity(0)) // processes, 1) if cluster == "local" else 0
    # Processes that begin deaf to Ctrl-C hear of it from here: submitit's own way would kill them after a second.
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    workers = [executor.submit(Worker(plan, threads)) for _ in range(min(processes, len(plan.jobs)))]
    signal.signal(signal.SIGINT, heard)
    with stop_on_signal() as stop:
        while not stop.requested and not all(worker.done() for worker in workers):
            time.sleep(PATIENCE)
    if stop.requested:
        _stop(workers, cluster)
        raise Interrupted(f"Stopped {len(workers)} processes.")
    for error in filter(None, (worker.exception() for worker in workers)):
        console.print(f"A process died, and its run can be gone on with: {error}", style="red", highlight=False)


def _stop(workers: list[Any], cluster: str) -> None:
    """Lets every process write a checkpoint and end. One that is not in training ignores the signal: it is repeated."""
    if cluster != "local":
        for worker in workers:
            worker.cancel(check=False)
        return
    while running := [worker for worker in workers if not worker.done()]:
        for worker in running:
            with suppress(ProcessLookupError):
                os.kill(int(worker.job_id), signal.SIGTERM)
        time.sleep(PATIENCE)


def _executor(plan: Plan, processes: int, cluster: str) -> Any:
    try:
        import submitit
    except ModuleNotFoundError:
        remedy = "pip install 'fastweights[cluster]', or leave out --jobs and --cluster."
        require(False, "jobs", "1 where submitit is not installed", processes, remedy)
    try:
        executor = submitit.AutoExecutor(folder=plan.path / "jobs", cluster=cluster)
    except RuntimeError as error:
        raise InputError(f"cluster must be one that can be reached from here, got '{cluster}': {error}.") from None
    hours = 24 if cluster == "slurm" else 24 * 365
    executor.update_parameters(name=plan.name.replace("/", "-"), timeout_min=hours * 60)
    return executor


class Status(NamedTuple):
    """How a run stands, as its folder tells."""

    state: str  # "finished", "failed", "running" or "waiting"
    step: int = 0
    seconds: float = 0.0
    value: float | None = None  # as in the table when finished, before that on validation data
    failure: str = ""


def status(job: Job, plan: Plan, began: float) -> Status:
    """Reads how a run stands; one that failed before `began` is waiting for another attempt."""
    run, metric = job.run(plan.folder), plan.experiment.metric
    if (found := outcome(run, metric)) is not None:
        return Status("finished", found.steps, found.seconds, found.value)
    with suppress(OSError):
        failure = run.path / FAILURE
        if failure.stat().st_mtime >= began:
            return Status("failed", failure=failure.read_text(encoding="utf-8"))
    state = "running" if run.progress_age() < ALIVE else "waiting"
    news = run.progress() or {}
    step, seconds = news.get("step", 0), news.get("seconds", 0.0)
    with suppress(InputError, KeyError, IndexError, TypeError):
        return Status(state, step, seconds, metric.value(run.metrics()[-1]["validation"]))
    return Status(state, step, seconds)


@contextmanager
def _shown(plan: Plan, console: Console, began: float) -> Iterator[None]:
    """The table: live on a terminal, once at the end anywhere else."""
    if console.is_terminal:
        show = partial(table_of, plan, began, rows=console.height - 6)
        with Live(get_renderable=show, console=console, refresh_per_second=1):
            yield
    else:
        yield
        console.print(table_of(plan, began, rows=len(plan.jobs)))


def table_of(plan: Plan, began: float, rows: int) -> Table:
    """A line a run: how far it is, how fast, how long it will take, and its number so far.

    Runs that are finished or waiting are only counted if there are more than `rows`.
    """
    statuses = {job: status(job, plan, began) for job in plan.jobs}
    counts = Counter(found.state for found in statuses.values())
    caption = ", ".join(f"{counts[state]} {state}" for state in ("finished", "failed", "running", "waiting"))
    label = plan.experiment.metric.label
    table = Table("model", "", "seed", "state", "updates", "a second", "left", label, caption=caption)
    for job, found in statuses.items():
        if len(statuses) <= rows or found.state in ("failed", "running"):
            table.add_row(*_row(job, found, plan.experiment))
    return table


def _row(job: Job, found: Status, experiment: Experiment) -> tuple[str, ...]:
    steps = job.trial(experiment).training.steps
    rate = found.step / found.seconds if found.seconds else 0.0
    left = _clock((steps - found.step) / rate) if rate and found.state == "running" else ""
    value = "" if found.value is None else f"{found.value:.4g}"
    names = (experiment.models[job.model], experiment.columns[job.column], str(job.seed))
    progress = f"{found.step:,} / {steps:,}" if found.step else ""
    return (*names, found.state, progress, f"{rate:,.1f}" if rate else "", left, value)


def _clock(seconds: float) -> str:
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f"{hours}:{minutes:02d}:{int(seconds) % 60:02d}"
