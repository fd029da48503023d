"""The runs of a plan, one after the other, in one process. Several processes may share a plan and its folder.

Each process takes the first run that is unfinished and that no other process has locked. So no run is done twice, and
another process takes up a run that a killed process left.
"""

import time
from pathlib import Path

import torch

from fastweights.core.errors import InputError
from fastweights.core.files import write_atomically
from fastweights.experiments import run_trial
from fastweights.experiments.experiment import Experiment
from fastweights.experiments.job import Job, outcome, require_same
from fastweights.experiments.plan import Plan
from fastweights.experiments.reuse import find_equal_run
from fastweights.experiments.status import status
from fastweights.training.run_folder.run import FAILURE, Busy
from fastweights.training.settings._training import Hardware

PATIENCE = 1.0
"""Seconds between two looks at whether another process has released a run."""


def work(plan: Plan, threads: int) -> None:
    """Executes all runs that no other process executes. A failed run does not stop others, and is not repeated."""
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
    """Executes a job; returns False if another process has locked it."""
    try:
        run_job(job, plan.experiment, plan.folder, plan.where)
    except Busy:
        return False
    except (InputError, OSError, RuntimeError) as error:
        failure = " ".join(str(error).split()).encode(errors="backslashreplace")
        write_atomically(job.run(plan.folder).path / FAILURE, failure)
    return True


def run_job(job: Job, experiment: Experiment, folder: Path, where: Hardware) -> None:
    """Trains and measures a job, unless it is finished. Resumes an interrupted run.

    A finished run of another table with the same settings and the same seed is copied.

    Raises:
        Busy: Another process trains in the run folder.
        InputError: The run folder holds a run with other settings, or a damaged one.
    """
    run, trial = job.run(folder), job.trial(experiment, where)
    with run.lock():
        if outcome(job, folder, experiment) is not None:
            return
        (run.path / FAILURE).unlink(missing_ok=True)
        if run.exists():
            require_same(run, job, trial)
        elif (finished := find_equal_run(trial, folder)) is not None:
            run.take_over(finished, job.experiment, job.facts(trial))
            return
        run_trial.run_trial(run, trial, job.experiment, job.facts(trial), resume=run.exists())
