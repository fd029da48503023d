"""The status of each run of a plan, read from run folders and from the file of runs, and its display."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fastweights.core.errors import InputError
from fastweights.core.files import read_file
from fastweights.experiments.experiment import Experiment
from fastweights.experiments.job import Job, outcome
from fastweights.experiments.plan import Plan
from fastweights.training.run_folder.run import FAILURE

ALIVE = 60.0
"""Seconds without news after which a run no longer counts as running in the table."""

SECONDS_BETWEEN_LOOKS = 5.0
"""How often folders are looked at where there is no terminal."""


class Status(NamedTuple):
    """Status of a run."""

    state: str  # "finished", "failed", "running" or "waiting"
    step: int = 0
    seconds: float = 0.0
    value: float | None = None  # as in the table when finished, before that on validation data
    failure: str = ""


def status(job: Job, plan: Plan, began: float) -> Status:
    """The status of a job. A run that failed before `began` waits for another attempt."""
    run, experiment = job.run(plan.folder), plan.experiment
    if (found := outcome(job, plan.folder, experiment)) is not None:
        return Status("finished", found.result.steps, found.result.seconds, found.value)
    with suppress(OSError, InputError):
        failure = run.path / FAILURE
        if failure.stat().st_mtime >= began:
            return Status("failed", failure=read_file(failure, FAILURE, limit=1 << 16).decode(errors="replace"))
    state = "running" if run.progress_age() < ALIVE else "waiting"
    step, seconds = run.progress()
    with suppress(InputError, KeyError, IndexError, TypeError):
        return Status(state, step, seconds, experiment.metric_of(run.config()).at(run.metrics()[-1]))
    return Status(state, step, seconds)


@contextmanager
def shown(plan: Plan, console: Console, began: float) -> Iterator[None]:
    """The table, live on a terminal, and then why runs failed; anywhere else a line for every run that ends, and then
    the table."""
    if console.is_terminal:
        show = partial(table_of, plan, began, rows=console.height - 6)
        with Live(get_renderable=show, console=console, refresh_per_second=1):
            yield
        for job in plan.jobs:
            if (found := status(job, plan, began)).state == "failed":
                console.print(_end(job, found, plan.experiment), style="red", highlight=False)
    else:
        with _told(plan, console, began):
            yield
        with suppress(OSError):
            console.print(table_of(plan, began, rows=len(plan.jobs)))


@contextmanager
def _told(plan: Plan, console: Console, began: float) -> Iterator[None]:
    over = Event()
    teller = Thread(target=_tell, args=(plan, console, began, over), daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _tell(plan: Plan, console: Console, began: float, over: Event) -> None:
    """Tells once of every run that is finished or has failed, until it is over."""
    told = set[Job]()
    while True:
        last = over.is_set()
        for job in plan.jobs:
            if job not in told and (found := status(job, plan, began)).state in ("finished", "failed"):
                told.add(job)
                line = f"{len(told)} of {len(plan.jobs)}: {_end(job, found, plan.experiment)}"
                # Runs go on where nobody listens any more.
                with suppress(OSError):
                    console.print(line, highlight=False, soft_wrap=True)
        if last:
            return
        over.wait(SECONDS_BETWEEN_LOOKS)


def _end(job: Job, found: Status, experiment: Experiment) -> str:
    run = f"{experiment.models[job.model]}, {experiment.columns[job.column]}, seed {job.seed}"
    if found.state == "failed":
        return f"{run}: {found.failure}"
    return f"{run}: {experiment.display.label} {found.value:.4g}, {found.step:,} updates in {_clock(found.seconds)}"


def table_of(plan: Plan, began: float, rows: int) -> Table:
    """A line a run: how far it is, how fast, how long it will take, and its number so far.

    Runs that are finished or waiting are only counted if there are more than `rows`.
    """
    statuses = {job: status(job, plan, began) for job in plan.jobs}
    counts = Counter(found.state for found in statuses.values())
    caption = ", ".join(f"{counts[state]} {state}" for state in ("finished", "failed", "running", "waiting"))
    label = plan.experiment.display.label
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
