"""Settings of a recipe from flags, YAML files and run folders."""

import re
from collections.abc import Collection
from dataclasses import asdict, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from jsonargparse import ArgumentError, ArgumentParser

from fastweights.core.errors import InputError, require, require_name
from fastweights.core.import_path import absolute
from fastweights.experiments.experiment import FREE
from fastweights.experiments.recipe_parser import OWN, recipe_parser, require_flags, switches
from fastweights.experiments.trust import NOTHING, TrustedCode, confirm_all
from fastweights.registry import RECIPES, TABLES
from fastweights.training.distributed.torchrun import num_launched
from fastweights.training.settings._training import ANY_TIME

SHOWING = ("--print-config", "--help", "-h")
UNLABELLED = ("layer", "seed", "precision", "sample", "evaluate_every", *ANY_TIME)
"""Flags that the label of a row omits: the layer comes first, and the others do not change the model."""

UNLIKE = re.compile(r'Parser key "(?P<flag>.+?)": Expected an? (?P<kind>.+)\. Got value: (?P<got>.*)')
"""Pattern of the parser's message for a value of the wrong type."""

KINDS = {"<class 'int'>": "a whole number", "<class 'float'>": "a number", "<class 'bool'>": "true or false"}


class Request(NamedTuple):
    """The parsed request of a training: flags, run folder, and whether to resume."""

    flags: Any
    run: str | None
    resume: bool


def parse(name: str, arguments: list[str]) -> Request:
    """Parses the flags of a recipe: its preset, then a YAML file (`--config`), then the flags themselves.

    With `--resume` the settings are those of the run; flags may repeat but not change them, except for the hardware. A
    custom layer must be named again, and may have moved: see `confirm`. Under torchrun, its processes are the devices.
    """
    kind = RECIPES.load(name)
    parser = recipe_parser(name, kind)
    require_flags(parser, arguments)
    arguments = _named(kind, arguments, switches(parser))
    # Flags that print the settings come later, since the settings depend on the preset or on the run.
    settings = [argument for argument in arguments if not argument.startswith(SHOWING)]
    first = _parse(parser, settings)
    resume = first.resume
    if resume:
        require(first.run is not None, "run", "given with --resume", "none", "Add --run DIR.")
        explicit = _explicit(parser, settings)
        stored = _stored(name, Path(first.run), TrustedCode(explicit.get("layer"), explicit.get("env")))
        parser.set_defaults(stored)
    else:
        require_name("preset", first.preset, kind.PRESETS)
        parser.set_defaults(kind.PRESETS[first.preset])
    values = {key: value for key, value in _parse(parser, arguments).as_dict().items() if key not in OWN}
    values = _absolute(values)
    for key, value in (stored if resume else {}).items():
        remedy = "Leave it out, or start a new run."
        same = values[key] == value or key in ANY_TIME
        require(same, key, f"{value!r} as in the run that is resumed", repr(values[key]), remedy)
    if num_launched() > 1:
        values["devices"] = num_launched()
    return Request(kind(**values), first.run, resume)


def facts(name: str, flags: Any) -> dict[str, Any]:
    """Facts of a trial by flags for the run folder: its position in the table of the experiment, and the flags."""
    trial = flags.trial()
    (column, *_) = TABLES.load(name).columns
    position = {
        "experiment": name,
        "preset": FREE,
        "model": label(flags),
        "column": column,
        "seed": trial.training.seed,
    }
    values = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(flags).items()}
    return {**position, "trial": trial.facts(), "flags": values}


def label(flags: Any) -> str:
    """Label of the row of a trial by flags: the layer, the nearest preset, and the differences from that preset."""
    defaults = {field.name: field.default for field in fields(flags)}
    values = {key: value for key, value in asdict(flags).items() if key not in UNLABELLED}
    presets = {name: {**defaults, **preset} for name, preset in flags.PRESETS.items()}
    differences = {name: {k: v for k, v in values.items() if v != preset[k]} for name, preset in presets.items()}
    nearest = min(differences, key=lambda name: len(differences[name]))
    parts = [f"{key.replace('_', ' ')} {value}" for key, value in differences[nearest].items()]
    return ", ".join([str(getattr(flags, "layer", "model")), f"preset {nearest}", *parts])


def flags_of(content: dict[str, Any], folder: Path, own: TrustedCode = NOTHING) -> Any:
    """The flags in the `config.json` of a run; `InputError` if they are invalid.

    `own` names the code of the user that the run needs.
    """
    name, values = content.get("recipe"), content["config"].get("flags")
    require_name(f"recipe in {folder}", str(name), RECIPES.names())
    kind = RECIPES.load(str(name))
    names = sorted(field.name for field in fields(kind))
    differing = sorted((set(names) ^ set(values if isinstance(values, dict) else ())) - {*ANY_TIME})
    require(not differing, f"flags in {folder}", f"the fields of {name}", f"a difference in {', '.join(differing)}")
    try:
        parsed = recipe_parser(str(name), kind).parse_object(values).as_dict()
    except ArgumentError as error:
        raise InputError(f"flags in {folder} must be those of {name}, got others: {_describe_error(error)}.") from None
    values_ = {key: value for key, value in parsed.items() if key not in OWN}
    flags = kind(**values_)
    # Flags are plain values. Code of the user takes the place of its address after their checks.
    for key, value in confirm_all(values_, own, folder).items():
        object.__setattr__(flags, key, value)
    return flags


def _parse(parser: ArgumentParser, arguments: list[str]) -> Any:
    try:
        return parser.parse_args(arguments)
    except ArgumentError as error:
        raise InputError(f"{_describe_error(error)}. See {parser.prog} --help.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"config must be a YAML file in UTF-8, got a bad byte at {error.start}.") from None


def _describe_error(error: ArgumentError) -> str:
    """The message of the parser in the form of the library."""
    text = " ".join(str(error).split()).rstrip(".")
    if not (match := UNLIKE.fullmatch(text)):
        return text
    choices = match["kind"].partition("typing.Literal[")[2].rstrip("]").replace("'", "")
    requirement = f"one of {choices}" if choices else KINDS.get(match["kind"], f"a {match['kind']}")
    return f"{match['flag']} must be {requirement}, got '{match['got']}'"


def _explicit(parser: ArgumentParser, arguments: list[str]) -> dict[str, Any]:
    """Values of flags and files, without defaults."""
    values: dict[str, Any] = parser.parse_args(arguments, defaults=False).as_dict()
    return values


def _stored(name: str, path: Path, own: TrustedCode) -> dict[str, Any]:
    # Run folders need a lock library, which imports fast, but not torch.
    from fastweights.training.run_folder.run import Run

    content = Run.open(path).config()
    require(content.get("recipe") == name, "recipe", f"{content.get('recipe')!r} as in {path}", repr(name))
    return asdict(flags_of(content, path, own))


def _named(kind: Any, arguments: list[str], without_value: Collection[str]) -> list[str]:
    """Adds the flag of the recipe to an argument that is neither a flag nor the value of a flag."""
    name = getattr(kind, "POSITIONAL", None)
    free = [
        not one.startswith("-") and (not last.startswith("-") or "=" in last or last in without_value)
        for last, one in pairwise(["", *arguments])
    ]
    return [f"--{name}={one}" if name and is_free else one for one, is_free in zip(arguments, free, strict=True)]


def _absolute(values: dict[str, Any]) -> dict[str, Any]:
    """Makes paths absolute, so that they are valid in any folder."""
    resolved = {key: value.resolve() if isinstance(value, Path) else value for key, value in values.items()}
    return resolved | {name: absolute(str(resolved[name])) for name in TrustedCode._fields if name in resolved}
