"""The parser of the flags of a recipe, whose help is grouped."""

import inspect
from argparse import BooleanOptionalAction
from collections.abc import Iterator
from dataclasses import Field, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from jsonargparse import ArgumentParser

from fastweights.core.docstrings import arguments
from fastweights.core.errors import invalid
from fastweights.core.other_names import unexpected_flag
from fastweights.registry import marked
from fastweights.training.settings._training import HARDWARE

OWN = ("preset", "run", "resume", "config")
"""Flags that are no settings of a recipe."""

GROUPS = ("data", "model", "training", "hardware")

METAVARS: dict[Any, str] = {int: "N", float: "X", Path: "PATH", str: "NAME"}
"""Placeholders of values in the help, by type."""


def recipe_parser(name: str, kind: Any) -> ArgumentParser:
    """The parser of a recipe.

    Every setting is a flag with hyphens. A boolean setting `x` has the flags `--x` and `--no-x`. A YAML file names
    settings with underscores.

    Args:
        name: The name of the recipe.
        kind: The dataclass of its settings, whose docstring describes them.
    """
    parser = ArgumentParser(
        f"fastweights train {name}",
        description=_description(kind),
        exit_on_error=False,
        allow_abbrev=False,
        print_config="--print-config",
    )
    parser.add_argument("--config", action="config", metavar="FILE", help="YAML file with any of the settings below.")
    printed = "Settings as YAML, printed instead of the training."
    parser._option_string_actions["--print-config"].help = printed
    presets = f"Settings to start from: {', '.join(kind.PRESETS)}."
    parser.add_argument("--preset", default="cpu", metavar="NAME", help=presets)
    groups = {group: parser.add_argument_group(group) for group in (*GROUPS, "output")}
    descriptions = _descriptions(kind)
    for field in fields(kind):
        _add(groups[_group(kind, field.name)], field, descriptions[field.name])
    run = "Run folder, for results and checkpoints. By default a new folder in runs/."
    groups["output"].add_argument("--run", type=str | None, default=None, metavar="PATH", help=run)
    groups["output"].add_argument("--resume", action="store_true", help="Resume the run in --run.")
    return parser


def require_flags(parser: ArgumentParser, arguments: list[str]) -> None:
    """Raises for a flag that a recipe does not have, and for a boolean flag with a value.

    Args:
        parser: The parser of the recipe.
        arguments: The arguments of the command line.
    """
    for argument, following in pairwise([*arguments, ""]):
        flag, equals, value = argument.partition("=")
        if flag.startswith("--") and flag not in flag_names(parser):
            raise unexpected_flag(flag, flag_names(parser), str(parser.prog).removeprefix("fastweights "))
        if flag in switches(parser) and (equals or following.lower() in ("true", "false")):
            name = flag.removeprefix("--").removeprefix("no-")
            raise invalid(name, f"given as --{name} or --no-{name}", f"{flag} {value or following}")


def flag_names(parser: ArgumentParser) -> set[str]:
    """The flags of a parser."""
    return {flag for action in parser._actions for flag in action.option_strings}


def switches(parser: ArgumentParser) -> set[str]:
    """The flags of a parser that take no value."""
    return {flag for action in parser._actions if action.nargs == 0 for flag in action.option_strings}


def _add(group: Any, field: Field[Any], description: str) -> None:
    """Adds the flag of a setting."""
    flag, options = f"--{field.name.replace('_', '-')}", {"default": field.default, "help": description}
    if field.type in (bool, bool | None):
        group.add_argument(flag, action=BooleanOptionalAction, **options)
    else:
        group.add_argument(flag, type=field.type, metavar=_placeholder(field.type), **options)


def _placeholder(annotation: Any) -> str:
    """The placeholder of a value in the help: its type, or its choices."""
    if get_origin(annotation) is Literal:
        return f"{{{','.join(get_args(annotation))}}}"
    name = next(METAVARS[one] for one in (annotation, *get_args(annotation)) if one in METAVARS)
    return f"[{name},...]" if get_origin(annotation) is tuple else name


def _group(kind: Any, name: str) -> str:
    """The group of a setting in the help."""
    if name in HARDWARE:
        return "hardware"
    return "data" if name in kind.DATA else "training" if name in _training(kind) else "model"


@cache
def _training(kind: Any) -> set[str]:
    """The settings of the training loop."""
    settings = (base for base in kind.__mro__ if base.__module__.startswith("fastweights.training.settings."))
    return {name for base in settings for name in vars(base).get("__annotations__", ())}


def _descriptions(kind: Any) -> dict[str, str]:
    """The descriptions of all settings, from the docstrings of a class and of its base classes."""
    return {name: text for base in reversed(kind.__mro__) for name, text in arguments(base.__doc__ or "").items()}


def _description(kind: Any) -> str:
    return " ".join(filter(None, _sentences(kind)))


def _sentences(kind: Any) -> Iterator[str]:
    docstring = inspect.cleandoc(kind.__doc__)
    data = marked(docstring, "Data: yours:")
    yield docstring.partition("\n")[0]
    yield f"Data: {data}" if data else ""
    yield f"Presets: {', '.join(kind.PRESETS)}."
