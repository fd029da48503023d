"""Parts of a trial: task and model by name, and the loop by the type of its settings."""

import json
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import nn

from fastweights.core.errors import require
from fastweights.experiments.experiment import Trial
from fastweights.registry import MODELS, TASKS
from fastweights.tasks import Task
from fastweights.training.run_folder.finished_run import FinishedRun
from fastweights.training.run_folder.task_metadata import shortened


def build(trial: Trial, task: Task) -> nn.Module:
    """Builds the model, freshly initialised from the seed."""
    torch.manual_seed(trial.training.seed)
    model: nn.Module = MODELS.load(trial.model)(*task.arguments, **trial.model_options)
    return model


def make_task(name: str, options: dict[str, Any]) -> Task:
    """Creates the task with its current files."""
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    task: Task = TASKS.load(name)(**values)
    return task


def loop_of(trial: Trial) -> ModuleType:
    """The loop for its settings: `loops/language_modelling.py` for those in `settings/language_modelling.py`."""
    module_name, _, name = type(trial.training).__module__.rpartition(".")
    return import_module(f"{module_name.rpartition('.')[0]}.loops.{name}")


def name_of(trial: Trial) -> str:
    """Name of a model: that of its layer, if it has one."""
    return str(trial.model_options.get("layer", trial.model))


def require_same_data(run: FinishedRun, trial: Trial, task: Task) -> None:
    """`InputError` unless the files of a task are those of the start of the run."""
    stored = run.config()["task"]
    same = all(stored.get(name) == fact for name, fact in shortened(task.facts()).items())
    require(same, trial.task, f"the data that {run.path} was started with", "other data", "Restore the file.")


def shared_task(trial: Trial) -> Task:
    """The task of a trial, shared by consecutive trials."""
    return _shared_task(trial.task, json.dumps(trial.task_options))


@lru_cache(maxsize=1)
def _shared_task(name: str, options: str) -> Task:
    """Creates a task; cached, since data may take seconds to build."""
    return make_task(name, json.loads(options))
