"""Trials from Python in run folders, which `fastweights.load` and the commands rebuild."""

import inspect
import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from fastweights.core.errors import InputError, require, require_name
from fastweights.core.import_path import address_of
from fastweights.experiments.experiment import Trial
from fastweights.experiments.trust import TrustedCode, confirm, confirm_env, require_names
from fastweights.registry import MODELS, SETTINGS, TASKS

PARTS = {"task": str, "task_options": dict, "model": str, "model_options": dict, "training": dict, "settings": list}


def write_trial(trial: Trial) -> dict[str, Any]:
    """Converts a trial to JSON. A layer object is written as its import path."""
    written: dict[str, Any] = json.loads(json.dumps(trial.written(), default=_address))
    return written


def read_trial(written: Any, own: TrustedCode, folder: Path) -> Trial:
    """Restores a trial from a run folder. Code that the folder names is executed only if `own` names it as well.

    Raises:
        InputError: The folder has no trial, or needs code that the user did not name.
    """
    valid = isinstance(written, dict) and all(isinstance(written.get(part), kind) for part, kind in PARTS.items())
    require(valid, f"trial in {folder}", f"an object with {', '.join(PARTS)}", "another", "Train it again.")
    task, model = written["task"], written["model"]
    require_name(f"task in {folder}", task, TASKS.names())
    require_name(f"model in {folder}", model, MODELS.names())
    task_options = _require_options("task_options", TASKS.load(task), written["task_options"], folder)
    model_options = _require_options("model_options", MODELS.load(model), written["model_options"], folder)
    # String options of tasks are names and data files, except for environments.
    require_names({name: value for name, value in task_options.items() if not isinstance(value, str)}, folder)
    require_names({name: value for name, value in model_options.items() if name != "layer"}, folder)
    if "id" in task_options:
        task_options["id"] = confirm_env(str(task_options["id"]), own.env, folder)
    if isinstance(model_options.get("layer"), str):
        model_options["layer"] = confirm(model_options["layer"], own.layer, folder)
    return Trial(task, task_options, model, model_options, _settings(written, folder))


def _address(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    module_name, name = (getattr(value, part, "?") for part in ("__module__", "__qualname__"))
    return address_of(value) or f"{module_name}:{name}"


def _require_options(part: str, kind: Any, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Checks that all options are parameters of a task or a model."""
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else list(inspect.signature(kind).parameters)
    for name in options:
        require_name(f"{part} in {folder}", name, names)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def _settings(written: dict[str, Any], folder: Path) -> Any:
    """Restores settings of training, of a type of the library."""
    module_name, *_ = written["settings"] or [""]
    name = str(module_name).rpartition(".")[2].replace("_", "-")
    require_name(f"settings in {folder}", name, SETTINGS.names())
    kind = SETTINGS.load(name)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind)
    try:
        return kind(**parser.parse_object(written["training"]).as_dict())
    except ArgumentError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"training in {folder} must be settings of {name}, got others: {reason}.") from None
