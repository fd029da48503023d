"""Flags, YAML files and run folders as the settings of a recipe that stands on its own."""

import inspect
import re
from dataclasses import asdict, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from jsonargparse import ArgumentError, ArgumentParser

from fastweights.core.errors import InputError, require, require_name
from fastweights.core.import_path import absolute
from fastweights.experiments.experiment import FREE
from fastweights.experiments.trust import NOTHING, Own, confirm_all
from fastweights.registry import RECIPES, TABLES, marked
from fastweights.training.distributed.torchrun import launched
from fastweights.training.settings._training import ANY_TIME

SHOWING = ("--print_config", "--help", "-h")
OWN = ("preset", "run", "resume", "config")
UNSAID = ("layer", "seed", "precision", "sample", "evaluate_every", *ANY_TIME)
"""Flags that no row of a table says: the layer comes first, and the others make no other model."""

UNLIKE = re.compile(r'Parser key "(?P<flag>.+?)": Expected an? (?P<kind>.+)\. Got value: (?P<got>.*)')
"""What the parser says of a value that is not of its flag's type."""

KINDS = {"<class 'int'>": "a whole number", "<class 'float'>": "a number", "<class 'bool'>": "true or false"}


class Request(NamedTuple):
    """What to train, and where."""

    flags: Any
    run: str | None
    resume: bool


def parse(name: str, arguments: list[str]) -> Request:
    """The flags of a recipe: its preset, then a YAML file (`--config`), then the flags themselves.

    With `--resume` the settings are those of the run; flags may repeat but not change them, except for where it is
    trained. A layer of the user's own must be repeated, and may have moved: see `confirm`. Processes that torchrun
    started are the devices.
    """
    kind = RECIPES.load(name)
    parser = _parser(name, kind)
    arguments = _named(kind, [_underscores(argument) for argument in arguments])
    # What only shows the settings waits until they are known: they depend on the preset, or on the run.
    settings = [argument for argument in arguments if not argument.startswith(SHOWING)]
    first = _parse(parser, settings)
    resume = first.resume
    if resume:
        require(first.run is not None, "run", "given with --resume", "none", "Add --run DIR.")
        given = _given(parser, settings)
        stored = _stored(name, Path(first.run), Own(given.get("layer"), given.get("env")))
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
    if launched() > 1:
        values["devices"] = launched()
    return Request(kind(**values), first.run, resume)


def facts(name: str, flags: Any) -> dict[str, Any]:
    """What a run folder says of a trial by flags: its place in the table of the experiment, and the flags."""
    trial = flags.trial()
    (column, *_) = TABLES.load(name).columns
    place = {"experiment": name, "preset": FREE, "model": label(flags), "column": column, "seed": trial.training.seed}
    values = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(flags).items()}
    return {**place, "trial": trial.facts(), "flags": values}


def label(flags: Any) -> str:
    """The row of a table that a trial by flags stands in: the layer, the nearest preset, and what else is not as in
    it."""
    defaults = {field.name: field.default for field in fields(flags)}
    values = {key: value for key, value in asdict(flags).items() if key not in UNSAID}
    presets = {name: {**defaults, **preset} for name, preset in flags.PRESETS.items()}
    differences = {name: {k: v for k, v in values.items() if v != preset[k]} for name, preset in presets.items()}
    nearest = min(differences, key=lambda name: len(differences[name]))
    said = [f"{key.replace('_', ' ')} {value}" for key, value in differences[nearest].items()]
    return ", ".join([str(getattr(flags, "layer", "model")), f"preset {nearest}", *said])


def flags_of(content: dict[str, Any], folder: Path, own: Own = NOTHING) -> Any:
    """The flags in a run's `config.json`; `InputError` if they are none of ours.

    `own` names the code of the user that the run needs.
    """
    name, values = content.get("recipe"), content["config"].get("flags")
    require_name(f"recipe in {folder}", str(name), RECIPES.names())
    kind = RECIPES.load(str(name))
    wanted = sorted(field.name for field in fields(kind))
    unlike = sorted((set(wanted) ^ set(values if isinstance(values, dict) else ())) - {*ANY_TIME})
    require(not unlike, f"flags in {folder}", f"the fields of {name}", f"a difference in {', '.join(unlike)}")
    try:
        parsed = _parser(str(name), kind).parse_object(values).as_dict()
    except ArgumentError as error:
        raise InputError(f"flags in {folder} must be those of {name}, got others: {_said(error)}.") from None
    given = {key: value for key, value in parsed.items() if key not in OWN}
    flags = kind(**given)
    # Flags are plain values. Code of the user takes the place of its address after their checks.
    for key, value in confirm_all(given, own, folder).items():
        object.__setattr__(flags, key, value)
    return flags


def _parser(name: str, kind: Any) -> ArgumentParser:
    data = marked(inspect.cleandoc(kind.__doc__), "Data: yours:")
    said = [kind.__doc__.splitlines()[0], f"Data: {data}" if data else "", f"Presets: {', '.join(kind.PRESETS)}."]
    description = " ".join(filter(None, said))
    parser = ArgumentParser(
        prog=f"fastweights train {name}", description=description, exit_on_error=False, allow_abbrev=False
    )
    parser.add_argument("--config", action="config", help="A YAML file with any of the settings below.")
    parser.add_argument("--preset", default="cpu", help=f"Settings to start from: {', '.join(kind.PRESETS)}.")
    parser.add_argument("--run", type=str | None, default=None, help="The run folder; a new one in runs/ if left out.")
    parser.add_argument("--resume", action="store_true", help="Go on with the run in --run.")
    parser.add_class_arguments(kind)
    return parser


def _parse(parser: ArgumentParser, arguments: list[str]) -> Any:
    try:
        return parser.parse_args(arguments)
    except ArgumentError as error:
        raise InputError(f"{_said(error)}. See {parser.prog} --help.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"config must be a YAML file in UTF-8, got a bad byte at {error.start}.") from None


def _said(error: ArgumentError) -> str:
    """What the parser complains of, as the rest of the library would say it."""
    text = " ".join(str(error).split()).rstrip(".")
    if not (found := UNLIKE.fullmatch(text)):
        return text
    choices = found["kind"].partition("typing.Literal[")[2].rstrip("]").replace("'", "")
    wanted = f"one of {choices}" if choices else KINDS.get(found["kind"], f"a {found['kind']}")
    return f"{found['flag']} must be {wanted}, got '{found['got']}'"


def _given(parser: ArgumentParser, arguments: list[str]) -> dict[str, Any]:
    """What flags and files say, without defaults."""
    given: dict[str, Any] = parser.parse_args(arguments, defaults=False).as_dict()
    return given


def _stored(name: str, path: Path, own: Own) -> dict[str, Any]:
    # Run folders need a lock file library that imports in a moment, but not torch.
    from fastweights.training.run_folder.run import Run

    content = Run.open(path).config()
    require(content.get("recipe") == name, "recipe", f"{content.get('recipe')!r} as in {path}", repr(name))
    return asdict(flags_of(content, path, own))


def _named(kind: Any, arguments: list[str]) -> list[str]:
    """The arguments. One that is neither a flag nor the value of a flag gets the flag that the recipe names for it."""
    name = getattr(kind, "POSITIONAL", None)
    before = ["--resume", *arguments]
    free = [not one.startswith("-") and not _takes_a_value(last) for last, one in pairwise(before)]
    return [f"--{name}={one}" if name and is_free else one for one, is_free in zip(arguments, free, strict=True)]


def _takes_a_value(argument: str) -> bool:
    return argument.startswith("-") and "=" not in argument and argument != "--resume"


def _underscores(argument: str) -> str:
    """`--batch-size=8` is the field `batch_size`."""
    flag, equals, value = argument.partition("=")
    return f"--{flag[2:].replace('-', '_')}{equals}{value}" if flag.startswith("--") else argument


def _absolute(values: dict[str, Any]) -> dict[str, Any]:
    """Files are found again from any folder."""
    found = {key: value.resolve() if isinstance(value, Path) else value for key, value in values.items()}
    return found | {name: absolute(str(found[name])) for name in Own._fields if name in found}
