"""Execution of a trial: training, in one process or several, and measurement."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from fastweights.experiments.experiment import Trial
from fastweights.experiments.load_run import trial_of
from fastweights.experiments.python_trial import write_trial
from fastweights.experiments.trial import build, loop_of, make_task, name_of, require_same_data, shared_task
from fastweights.experiments.trust import TrustedCode
from fastweights.tasks import Task
from fastweights.training.distributed.hardware import build_within_memory, make_fabric
from fastweights.training.distributed.ranks import join, share
from fastweights.training.distributed.torchrun import num_launched, run_on_all_ranks
from fastweights.training.malloc import use_arena_allocator
from fastweights.training.progress import PlainConsole
from fastweights.training.run_folder.checkpoints import best_model
from fastweights.training.run_folder.result import Result
from fastweights.training.run_folder.run import Run
from fastweights.training.session import Session


def run_trial(
    run: Run, trial: Trial, recipe: str, config: dict[str, Any], resume: bool, shown: bool = False
) -> tuple[Session, Result]:
    """Trains and measures a trial. Several processes may train; one measures.

    Args:
        run: Run folder.
        trial: The trial.
        recipe: Name of the recipe or of the experiment, for `config.json`.
        config: Further settings for `config.json`.
        resume: Whether to resume the run.
        shown: Whether to show progress on the console.

    Raises:
        InputError: Arguments are invalid or do not fit the run. A run that has not begun leaves no folder.
    """
    about: dict[str, Any] = {"recipe": recipe, "config": config, "resume": resume, "shown": shown}
    if trial.training.devices > 1 and num_launched() > 1:
        run_on_all_ranks(run_order, {"run": str(run.path), "trial": trial.written(), "about": about})
    else:
        share(trial.training, partial(_train, **about), run, trial)
    return measure(run, trial, shared_task(trial))


def run_order(order: dict[str, Any]) -> None:
    """Joins a training as one of the processes of torchrun."""
    trial = Trial.read(order["trial"])
    join(trial.training, partial(_train, **order["about"]), Run(Path(order["run"])), trial)


def _train(
    fabric: Fabric, run: Run, trial: Trial, *, recipe: str, config: dict[str, Any], resume: bool, shown: bool
) -> None:
    use_arena_allocator()
    task, console = shared_task(trial), PlainConsole() if shown and fabric.is_global_zero else None
    model = build_within_memory(lambda: build(trial, task))
    if resume:
        require_same_data(run, trial, task)

    def begin() -> None:
        if not resume:
            run.begin(recipe, {"trial": write_trial(trial), **config}, task.facts(), task.main_metric)
        if console is not None:
            size = sum(p.numel() for p in model.parameters())
            console.print(f"{name_of(trial)}, {size:,} parameters, run folder {run.path}")
            if task.summary_line:
                console.print(task.summary_line, highlight=False)

    loop_of(trial).train(Session(fabric, model, task, trial.training, run, name_of(trial), begin, console))


def measure(run: Run, trial: Trial, task: Task) -> tuple[Session, Result]:
    """Measures the best validation weights, and writes the result if training has ended."""
    model = best_model(run, lambda: build(trial, task))
    session = Session(make_fabric(replace(trial.training, devices=1)), model, task, trial.training, run, name_of(trial))
    result = loop_of(trial).finish(session)
    if result.stopped:
        run.write_result(result)
    return session, result


def measure_run(run: Run, own: TrustedCode) -> tuple[Trial, Session, Result]:
    """Measures a finished run again."""
    trial = trial_of(run, own)
    task = make_task(trial.task, trial.task_options)
    require_same_data(run, trial, task)
    return trial, *measure(run, trial, task)
