"""Trains a model with the settings of a recipe; see `fastweights train RECIPE --help`."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from fastweights.commands._columns import columns
from fastweights.commands._results import show
from fastweights.commands._streams import print_nowhere
from fastweights.core.errors import InputError, ProcessDied, require, require_name
from fastweights.core.import_path import is_address, names_in
from fastweights.registry import EXPERIMENTS, RECIPES, marked

HELP = 88
"""Maximum number of columns of the lists in the help."""


def add(command: argparse.ArgumentParser) -> None:
    """Adds a recipe, which parses the other arguments itself."""
    command.description = f"{command.description}\n\n{_groups()}"
    command.add_argument("recipe", metavar="RECIPE", help="Name of a recipe, from the lists above.")
    command.add_argument(
        "flags", nargs=argparse.REMAINDER, metavar="...", help="Settings of the recipe."
    ).required = False


def _groups() -> str:
    """Lists the recipes with their descriptions, those for data of the user first."""
    custom = {name: data for name in RECIPES.names() if (data := marked(RECIPES.docstring(name), "Data: yours:"))}
    named = {name: RECIPES.describe(name).summary for name in RECIPES.names() if name not in custom}
    return f"your data:\n{columns(custom, '  ', HELP)}\n\nnamed data sets:\n{columns(named, '  ', HELP)}"


def run(options: argparse.Namespace) -> int:
    """Starts or resumes the training."""
    from fastweights.experiments.flags import facts, parse

    recipe = options.recipe
    _require_recipe(recipe)
    request = parse(recipe, options.flags)
    from fastweights.experiments.run_trial import run_trial
    from fastweights.training.progress import Interrupted
    from fastweights.training.run_folder.run import Run

    require(request.run != "", "run", "the name of a folder", "an empty name")
    run = Run.unused(recipe) if request.run is None else Run(Path(request.run))
    try:
        with run.lock():
            trial = request.flags.trial()
            show(run, trial, *run_trial(run, trial, recipe, facts(recipe, request.flags), request.resume, shown=True))
            print(_how_to_use(request.flags, run))
    except (Interrupted, KeyboardInterrupt, BrokenPipeError) as stop:
        print_nowhere()
        print(f"{_why(stop)} {_how_to_resume(recipe, run)}", file=sys.stderr)
        return 130
    except ProcessDied as death:
        raise ProcessDied(f"{death} {_how_to_resume(recipe, run)}") from None
    return 0


def _require_recipe(name: str) -> None:
    if name in set(EXPERIMENTS.names()) - set(RECIPES.names()):
        names = ", ".join(RECIPES.names())
        raise InputError(f"recipe must be one of {names}, got '{name}'. Try fastweights reproduce {name}.")
    require_name("recipe", name, RECIPES.names())


def _how_to_use(flags: Any, run: Any) -> str:
    """The commands for the model of a finished run, with the import paths of code of the user."""
    options = {name: str(getattr(flags, name, "")) for name in ("layer", "env")}
    custom = {name: value for name, value in options.items() if any(map(is_address, names_in(value)))}
    path, named = str(run.path), "".join(f" --{name} {shlex.quote(value)}" for name, value in custom.items())
    command = flags.USE.replace("RUN", shlex.quote(path), 1) + named
    call = f"fastweights.load({path!r}{''.join(f', {name}={value!r}' for name, value in custom.items())})"
    again = f"fastweights evaluate {shlex.quote(path)}{named}"
    return f"Use it: fastweights {command}\nEvaluate it again: {again}\nIn Python: model, task = {call}"


def _why(stop: BaseException) -> str:
    return "Stopped: the output was closed." if isinstance(stop, BrokenPipeError) else str(stop) or "Stopped."


def _how_to_resume(recipe: str, run: Any) -> str:
    command = f"fastweights train {recipe} --run {shlex.quote(str(run.path))} --resume"
    return f"Resume with: {command}" if run.exists() else "No step was completed."
