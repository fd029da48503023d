"""A trial carried out: its parts are found by name, its loop by the type of its settings."""

import json
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from fastweights.catalogue import MODELS, TASKS
from fastweights.errors import require
from fastweights.experiments.experiment import Trial
from fastweights.tasks import Task
from fastweights.training.allocation import keep_freed_memory
from fastweights.training.hardware import build_within_memory, make_fabric
from fastweights.training.kept import best_model
from fastweights.training.launched import launched, lead
from fastweights.training.processes import join, share
from fastweights.training.progress import Plain
from fastweights.training.result import Result
from fastweights.training.run import Run
from fastweights.training.session import Session


def carry_out(
    run: Run, trial: Trial, recipe: str, config: dict[str, Any], resume: bool, shown: bool = False
) -> tuple[Session, Result]:
    """Trains and measures; goes on with what is there if it is to `resume`. Several processes train, one measures.

    Raises:
        InputError: Something does not fit together. A run that has not begun leaves no folder then.
    """
    about: dict[str, Any] = {"recipe": recipe, "config": config, "resume": resume, "shown": shown}
    if trial.training.devices > 1 and launched() > 1:
        lead(carry_out_order, {"run": str(run.path), "trial": trial.written(), "about": about})
    else:
        share(trial.training, partial(_train, **about), run, trial)
    return measure(run, trial, shared_task(trial))


def carry_out_order(order: dict[str, Any]) -> None:
    """The part that each of the processes of torchrun has in a training."""
    trial = Trial.read(order["trial"])
    join(trial.training, partial(_train, **order["about"]), Run(Path(order["run"])), trial)


def _train(
    fabric: Fabric, run: Run, trial: Trial, *, recipe: str, config: dict[str, Any], resume: bool, shown: bool
) -> None:
    keep_freed_memory()
    task, console = shared_task(trial), Plain() if shown and fabric.is_global_zero else None
    model = build_within_memory(lambda: build(trial, task))
    if resume:
        require_same_data(run, trial, task)

    def begin() -> None:
        if not resume:
            run.begin(recipe, config, task.facts())
        if console is not None:
            size = sum(p.numel() for p in model.parameters())
            console.print(f"{name_of(trial)}, {size:,} parameters, run folder {run.path}")

    loop_of(trial).train(Session(fabric, model, task, trial.training, run, name_of(trial), begin, console))


def measure(run: Run, trial: Trial, task: Task) -> tuple[Session, Result]:
    """Measures the weights that validated best, and writes the result if training has come to its end."""
    model = best_model(run, lambda: build(trial, task))
    session = Session(make_fabric(replace(trial.training, devices=1)), model, task, trial.training, run, name_of(trial))
    result = loop_of(trial).finish(session)
    if result.stopped:
        run.write_result(result)
    return session, result


def build(trial: Trial, task: Task) -> nn.Module:
    """The model, freshly initialised from the seed."""
    torch.manual_seed(trial.training.seed)
    model: nn.Module = MODELS.load(trial.model)(*task.arguments, **trial.model_options)
    return model


def make_task(name: str, options: dict[str, Any]) -> Task:
    """The task, as its files are now."""
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    task: Task = TASKS.load(name)(**values)
    return task


def loop_of(trial: Trial) -> ModuleType:
    """The loop for its settings: `loops/streamed.py` for those in `settings/streamed.py`."""
    home, _, name = type(trial.training).__module__.rpartition(".")
    return import_module(f"{home.rpartition('.')[0]}.loops.{name}")


def name_of(trial: Trial) -> str:
    """What a model is called: by its layer, if it says which."""
    return str(trial.model_options.get("layer", trial.model))


def require_same_data(run: Run, trial: Trial, task: Task) -> None:
    """`InputError` unless the files of a task are those that the run was begun with."""
    stored = run.config()["task"]
    same = all(stored.get(name) == fact for name, fact in task.facts().items())
    require(same, trial.task, f"the one that {run.path} was begun with", "another", "Restore the file.")


def shared_task(trial: Trial) -> Task:
    """The task of a trial, made once for all trials that follow each other."""
    return _shared_task(trial.task, json.dumps(trial.task_options))


@lru_cache(maxsize=1)
def _shared_task(name: str, options: str) -> Task:
    """Data that take seconds to make are made once for all models."""
    return make_task(name, json.loads(options))
