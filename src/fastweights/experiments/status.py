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
"""Seconds without progress after which the table no longer shows a run as running."""

POLL_INTERVAL = 5.0
"""Seconds between two reads of the run folders without a terminal."""
TICK = 0.02
"""Seconds by which the time of a new file may be behind `time.time()`: systems round it down to a tick of a timer."""


class Status(NamedTuple):
    """Status of a run."""

    state: str  # "finished", "failed", "running" or "waiting"
    step: int = 0
    seconds: float = 0.0
    value: float | None = None  # the number of the table; of an unfinished run that on validation data
    failure: str = ""


def status(job: Job, plan: Plan, began: float) -> Status:
    """The status of a job. A run that failed before `began` waits for another attempt."""
    run, experiment = job.run(plan.folder), plan.experiment
    if (end := outcome(job, plan.folder, experiment)) is not None:
        return Status("finished", end.result.steps, end.result.seconds, end.value)
    with suppress(OSError, InputError):
        failure = run.path / FAILURE
        if failure.stat().st_mtime >= began - TICK:
            return Status("failed", failure=read_file(failure, FAILURE, limit=1 << 16).decode(errors="replace"))
    state = "running" if run.progress_age() < ALIVE else "waiting"
    step, seconds = run.progress()
    with suppress(InputError, KeyError, IndexError, TypeError):
        return Status(state, step, seconds, experiment.metric_of(run.config()).at(run.metrics()[-1]))
    return Status(state, step, seconds)


@contextmanager
def shown(plan: Plan, console: Console, began: float) -> Iterator[None]:
    """Shows the progress of a plan.

    On a terminal this is a live table, followed by the failures. Elsewhere it is one line per run that ends, followed
    by the table.
    """
    if console.is_terminal:
        show = partial(table_of, plan, began, rows=console.height - 6)
        with Live(get_renderable=show, console=console, refresh_per_second=1):
            yield
        for job in plan.jobs:
            if (current := status(job, plan, began)).state == "failed":
                console.print(_end(job, current, plan.experiment), style="red", highlight=False)
    else:
        with _printing_ends(plan, console, began):
            yield
        with suppress(OSError):
            console.print(table_of(plan, began, rows=len(plan.jobs)))


@contextmanager
def _printing_ends(plan: Plan, console: Console, began: float) -> Iterator[None]:
    over = Event()
    printer = Thread(target=_print_ends, args=(plan, console, began, over), daemon=True)
    printer.start()
    try:
        yield
    finally:
        over.set()
        printer.join()


def _print_ends(plan: Plan, console: Console, began: float, over: Event) -> None:
    """Prints one line per run that is finished or has failed, until `over` is set."""
    printed = set[Job]()
    while True:
        last = over.is_set()
        for job in plan.jobs:
            if job not in printed and (current := status(job, plan, began)).state in ("finished", "failed"):
                printed.add(job)
                line = f"{len(printed)} of {len(plan.jobs)}: {_end(job, current, plan.experiment)}"
                # The runs continue even if the console is closed.
                with suppress(OSError):
                    console.print(line, highlight=False, soft_wrap=True)
        if last:
            return
        over.wait(POLL_INTERVAL)


def _end(job: Job, current: Status, experiment: Experiment) -> str:
    run = f"{experiment.models[job.model]}, {experiment.columns[job.column]}, seed {job.seed}"
    if current.state == "failed":
        return f"{run}: {current.failure}"
    steps = f"{current.step:,} training steps in {_clock(current.seconds)}"
    return f"{run}: {experiment.display.label} {current.value:.4g}, {steps}"


def table_of(plan: Plan, began: float, rows: int) -> Table:
    """A table with one row per run: progress, speed, remaining time, and its number so far.

    If there are more than `rows` runs, the table only counts those that are finished or waiting.
    """
    statuses = {job: status(job, plan, began) for job in plan.jobs}
    counts = Counter(current.state for current in statuses.values())
    caption = ", ".join(f"{counts[state]} {state}" for state in ("finished", "failed", "running", "waiting"))
    label = plan.experiment.display.label
    table = Table("model", "", "seed", "state", "training steps", "per second", "left", label, caption=caption)
    for job, current in statuses.items():
        if len(statuses) <= rows or current.state in ("failed", "running"):
            table.add_row(*_row(job, current, plan.experiment))
    return table


def _row(job: Job, current: Status, experiment: Experiment) -> tuple[str, ...]:
    steps = job.trial(experiment).training.steps
    rate = current.step / current.seconds if current.seconds else 0.0
    left = _clock((steps - current.step) / rate) if rate and current.state == "running" else ""
    value = "" if current.value is None else f"{current.value:.4g}"
    names = (experiment.models[job.model], experiment.columns[job.column], str(job.seed))
    progress = f"{current.step:,} / {steps:,}" if current.step else ""
    return (*names, current.state, progress, f"{rate:,.1f}" if rate else "", left, value)


def _clock(seconds: float) -> str:
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f"{hours}:{minutes:02d}:{int(seconds) % 60:02d}"
