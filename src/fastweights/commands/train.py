"""Trains a model by a recipe; `fastweights train RECIPE --help` has its settings."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from fastweights.catalogue import EXPERIMENTS, RECIPES
from fastweights.commands._shown import show
from fastweights.commands._streams import print_nowhere
from fastweights.errors import Died, InputError, require, require_name


def add(command: argparse.ArgumentParser) -> None:
    """A recipe, which reads the rest itself."""
    command.add_argument("recipe", metavar="RECIPE", help=f"one of {', '.join(RECIPES.names())}")
    command.add_argument("flags", nargs=argparse.REMAINDER, metavar="...", help="its settings").required = False


def run(options: argparse.Namespace) -> int:
    """Trains it, or goes on with it."""
    from fastweights.experiments.flags import facts, parse

    recipe = options.recipe
    _require_recipe(recipe)
    request = parse(recipe, options.flags)
    from fastweights.experiments.carried_out import carry_out
    from fastweights.training.progress import Interrupted
    from fastweights.training.run import Run

    require(request.run != "", "run", "the name of a folder", "an empty one")
    home = Run.unused(recipe) if request.run is None else Run(Path(request.run))
    try:
        with home.lock():
            trial = request.flags.trial()
            show(home, trial, *carry_out(home, trial, recipe, facts(recipe, request.flags), request.resume, shown=True))
    except (Interrupted, KeyboardInterrupt, BrokenPipeError) as stop:
        print_nowhere()
        print(f"{_why(stop)} {_how_to_go_on(recipe, home)}", file=sys.stderr)
        return 130
    except Died as death:
        raise Died(f"{death} {_how_to_go_on(recipe, home)}") from None
    return 0


def _require_recipe(name: str) -> None:
    if name in set(EXPERIMENTS.names()) - set(RECIPES.names()):
        known = ", ".join(RECIPES.names())
        raise InputError(f"recipe must be one of {known}, got '{name}'. Try fastweights reproduce {name}.")
    require_name("recipe", name, RECIPES.names())


def _why(stop: BaseException) -> str:
    return "Stopped: nobody reads the output." if isinstance(stop, BrokenPipeError) else str(stop) or "Stopped."


def _how_to_go_on(recipe: str, run: Any) -> str:
    command = f"fastweights train {recipe} --run {shlex.quote(str(run.path))} --resume"
    return f"Go on with: {command}" if run.exists() else "Nothing was done yet."
