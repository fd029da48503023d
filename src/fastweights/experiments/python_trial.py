"""Trials that a user wrote in Python, in run folders: what `fastweights.load` and the commands build again."""

import inspect
import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from fastweights.core.errors import InputError, require, require_name
from fastweights.core.import_path import address_of
from fastweights.experiments.experiment import Trial
from fastweights.experiments.trust import Own, confirm, confirm_env, require_names
from fastweights.registry import MODELS, SETTINGS, TASKS

PARTS = {"task": str, "task_options": dict, "model": str, "model_options": dict, "training": dict, "settings": list}


def write_trial(trial: Trial) -> dict[str, Any]:
    """A trial as JSON. A layer that is given as an object is written as the address of its code."""
    written: dict[str, Any] = json.loads(json.dumps(trial.written(), default=_address))
    return written


def read_trial(written: Any, own: Own, folder: Path) -> Trial:
    """The trial that was written to a run folder. Code that the folder names is run only where `own` names it, too.

    Raises:
        InputError: It is no trial, or needs code that the user did not name.
    """
    known = isinstance(written, dict) and all(isinstance(written.get(part), kind) for part, kind in PARTS.items())
    require(known, f"trial in {folder}", f"one with {', '.join(PARTS)}", "another", "Train it again.")
    task, model = written["task"], written["model"]
    require_name(f"task in {folder}", task, TASKS.names())
    require_name(f"model in {folder}", model, MODELS.names())
    task_options = _known("task_options", TASKS.load(task), written["task_options"], folder)
    model_options = _known("model_options", MODELS.load(model), written["model_options"], folder)
    # What tasks are told as strings are names and files with data, but for environments.
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
    home, name = (getattr(value, part, "?") for part in ("__module__", "__qualname__"))
    return address_of(value) or f"{home}:{name}"


def _known(part: str, kind: Any, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Options, if all are some of a task or a model."""
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else list(inspect.signature(kind).parameters)
    for name in options:
        require_name(f"{part} in {folder}", name, names)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def _settings(written: dict[str, Any], folder: Path) -> Any:
    """Settings of training, of a type that is one of the library's."""
    home, *_ = written["settings"] or [""]
    name = str(home).rpartition(".")[2].replace("_", "-")
    require_name(f"settings in {folder}", name, SETTINGS.names())
    kind = SETTINGS.load(name)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind)
    try:
        return kind(**parser.parse_object(written["training"]).as_dict())
    except ArgumentError as error:
        told = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"training in {folder} must be settings of {name}, got others: {told}.") from None
