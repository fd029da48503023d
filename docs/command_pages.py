"""Pages of the commands, from their parsers: one page per command, and one per recipe of `fastweights train`."""

import argparse
from collections.abc import Iterator
from typing import Any

from fastweights.cli import make_parser
from fastweights.experiments.recipe_parser import recipe_parser
from fastweights.registry import COMMANDS, RECIPES


def command_pages() -> dict[str, str]:
    """Pages by name."""
    pages = {name: _page(_command(name), _recipes() if name == "train" else "") for name in COMMANDS.names()}
    return pages | {f"train-{name}": _page(_recipe(name)) for name in RECIPES.names()}


def _command(name: str) -> argparse.ArgumentParser:
    (commands,) = make_parser([name])._subparsers._group_actions  # type: ignore[union-attr]
    parser: argparse.ArgumentParser = commands.choices[name]  # type: ignore[index]
    return parser


def _recipe(name: str) -> Any:
    kind = RECIPES.load(name)
    parser = recipe_parser(name, kind)
    parser.set_defaults(kind.PRESETS["cpu"])
    return parser


def _recipes() -> str:
    pages = ", ".join(f"[{name}](train-{name}.md)" for name in RECIPES.names())
    return f"The settings of each recipe have a page: {pages}."


def _page(parser: argparse.ArgumentParser, more: str = "") -> str:
    required = [_value(action) for action in parser._actions if action.required]
    usage = " ".join([parser.prog, *(value for value in required if value != "..."), "[FLAGS]"])
    parts = [f"# {parser.prog}", *_description(parser.description or ""), f"```sh\n{usage}\n```", more]
    return "\n\n".join(filter(None, [*parts, *_tables(parser)])) + "\n"


def _description(text: str) -> Iterator[str]:
    """Paragraphs of a description. Lists become text blocks."""
    for paragraph in text.split("\n\n"):
        is_list = "\n  " in paragraph or paragraph.startswith("  ")
        yield f"```text\n{paragraph}\n```" if is_list else " ".join(paragraph.split())


def _tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    """One table per group of arguments."""
    for group in parser._action_groups:
        rows = [_row(action) for action in group._group_actions if action.help is not None and action.dest != "help"]
        if rows:
            title = {"positional arguments": "Arguments", "options": "Flags"}.get(group.title or "", group.title or "")
            head = "| argument | meaning | default |\n|---|---|---|"
            yield f"## {title[0].upper()}{title[1:]}\n\n" + "\n".join([head, *rows])


def _row(action: argparse.Action) -> str:
    meaning, _, default = " ".join(str(action.help).split()).partition(" (default: ")
    known = default.rstrip(")") if default else _default(action)
    return f"| `{_value(action)}` | {meaning.replace('|', chr(92) + '|')} | {known} |"


def _value(action: argparse.Action) -> str:
    """The flags of an argument with the placeholder of its value, or the placeholder alone."""
    choices = f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""
    name = str(action.metavar or choices or action.dest.upper())
    if not action.option_strings:
        return name
    flags = ", ".join(action.option_strings)
    if action.nargs == 0:
        return flags
    return f"{flags} {name}{' ...' if action.nargs == '+' else ''}"


def _default(action: argparse.Action) -> str:
    match action.default:
        case bool() as switch:
            return "on" if switch else "off"
        case None | [] | () | "" | argparse.SUPPRESS:
            return ""
        case tuple() as values:
            return f"`[{', '.join(map(str, values))}]`"
    return f"`{action.default}`"
