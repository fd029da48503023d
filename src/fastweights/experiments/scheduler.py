"""Starts the processes that carry out the runs of a plan, shows their progress and stops them."""

import time

from rich.console import Console

from fastweights.core.errors import require
from fastweights.experiments.plan import Plan
from fastweights.experiments.run_jobs import PATIENCE, work
from fastweights.experiments.status import shown, status
from fastweights.experiments.workers import Worker, start
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.progress import Interrupted, stop_on_signal
from fastweights.training.run_folder.runs_file import packed_runs


def reproduce(plan: Plan, jobs: int, cluster: str, console: Console) -> bool:
    """Runs the jobs that are not finished and shows their progress. Returns whether all jobs are finished.

    Raises:
        InputError: The file of runs is damaged. Nothing is started.
        Interrupted: Ctrl-C or SIGTERM, after a checkpoint of every run.
    """
    require(jobs >= 1, "jobs", "at least 1", jobs)
    if cluster == "local":
        make_fabric(plan.jobs[0].trial(plan.experiment, plan.where).training)
    packed_runs(plan.path)
    plan.path.mkdir(parents=True, exist_ok=True)
    start_time = time.time()
    with shown(plan, console, start_time):
        if jobs == 1 and cluster == "local":
            work(plan, threads=0)
        else:
            _start_workers(plan, jobs, cluster, console)
    return all(status(job, plan, start_time).state == "finished" for job in plan.jobs)


def _start_workers(plan: Plan, processes: int, cluster: str, console: Console) -> None:
    """Starts processes, locally or as jobs of SLURM, and waits for them."""
    workers = start(plan, processes, cluster)
    with stop_on_signal() as stop:
        while not stop.requested and not all(worker.done() for worker in workers):
            time.sleep(PATIENCE)
    if stop.requested:
        _stop(workers)
        raise Interrupted(f"Stopped {len(workers)} processes.")
    for failure in filter(None, (worker.failure() for worker in workers)):
        console.print(f"A process died; its run can be resumed: {failure}", style="red", highlight=False)


def _stop(workers: list[Worker]) -> None:
    for worker in workers:
        worker.stop()
    while not all(worker.done() for worker in workers):
        time.sleep(PATIENCE)
