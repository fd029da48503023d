"""Carries out all runs of an experiment, in any number of processes that meet in one folder.

Every process does the same: it takes the first run that is not finished and that nobody else has locked. So runs are
shared out by themselves, none is done twice, and what a killed process left is taken up by another.
"""

import time
from pathlib import Path

import torch
from rich.console import Console

from fastweights.core.errors import InputError, require
from fastweights.core.files import write_atomically
from fastweights.experiments import run_trial as carried_out
from fastweights.experiments.experiment import Experiment
from fastweights.experiments.job import Job, outcome, require_same
from fastweights.experiments.plan import Plan
from fastweights.experiments.reuse import twin_of
from fastweights.experiments.status import shown, status
from fastweights.experiments.workers import Worker, start
from fastweights.training.hardware import make_fabric
from fastweights.training.progress import Interrupted, stop_on_signal
from fastweights.training.run_folder.run import FAILURE, Busy
from fastweights.training.settings._training import Where

PATIENCE = 1.0
"""Seconds until one looks again whether another process has let go of a run."""


def reproduce(plan: Plan, jobs: int, cluster: str, console: Console) -> bool:
    """Carries out what is missing and shows how it goes; whether all runs have come to their end.

    Raises:
        Interrupted: Ctrl-C or SIGTERM, after a checkpoint of every run.
    """
    require(jobs >= 1, "jobs", "at least 1", jobs)
    if cluster == "local":
        make_fabric(plan.jobs[0].trial(plan.experiment, plan.where).training)
    plan.path.mkdir(parents=True, exist_ok=True)
    began = time.time()
    with shown(plan, console, began):
        if jobs == 1 and cluster == "local":
            work(plan, threads=0)
        else:
            _work_elsewhere(plan, jobs, cluster, console)
    return all(status(job, plan, began).state == "finished" for job in plan.jobs)


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


def _is_over(job: Job, plan: Plan, began: float) -> bool:
    return status(job, plan, began).state in ("finished", "failed")


def _attempt(job: Job, plan: Plan) -> bool:
    """False if another process is at it."""
    try:
        carry_out(job, plan.experiment, plan.folder, plan.where)
    except Busy:
        return False
    except (InputError, OSError, RuntimeError) as error:
        failure = " ".join(str(error).split()).encode(errors="backslashreplace")
        write_atomically(job.run(plan.folder).path / FAILURE, failure)
    return True


def carry_out(job: Job, experiment: Experiment, folder: Path, where: Where) -> None:
    """Trains and measures, unless that is done, here or in another table; goes on with what is there.

    Raises:
        Busy: Another process is at it.
        InputError: The folder holds a run with other settings, or a damaged one.
    """
    run, trial = job.run(folder), job.trial(experiment, where)
    with run.lock():
        if outcome(run, experiment.metric) is not None:
            return
        (run.path / FAILURE).unlink(missing_ok=True)
        if run.exists():
            require_same(run, job, trial)
        elif (twin := twin_of(trial, folder)) is not None:
            run.take_over(twin, job.experiment, job.facts(trial))
            return
        carried_out.carry_out(run, trial, job.experiment, job.facts(trial), resume=run.exists())


def _work_elsewhere(plan: Plan, processes: int, cluster: str, console: Console) -> None:
    """As many processes as wanted, here or as jobs of SLURM, and waits for them."""
    workers = start(plan, processes, cluster)
    with stop_on_signal() as stop:
        while not stop.requested and not all(worker.done() for worker in workers):
            time.sleep(PATIENCE)
    if stop.requested:
        _stop(workers)
        raise Interrupted(f"Stopped {len(workers)} processes.")
    for failure in filter(None, (worker.failure() for worker in workers)):
        console.print(f"A process died, and its run can be gone on with: {failure}", style="red", highlight=False)


def _stop(workers: list[Worker]) -> None:
    for worker in workers:
        worker.stop()
    while not all(worker.done() for worker in workers):
        time.sleep(PATIENCE)
