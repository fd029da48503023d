"""Flags of all commands and recipes: one spelling, one form for booleans, and a description."""

import re
from argparse import BooleanOptionalAction
from functools import cache
from pathlib import Path

import pytest

from fastweights import cli
from fastweights.core.errors import InputError
from fastweights.core.other_names import OTHER_NAMES, unexpected_flag
from fastweights.experiments.recipe_parser import GROUPS, flag_names, recipe_parser, require_flags, switches
from fastweights.registry import COMMANDS, RECIPES
from fastweights.training.settings._training import HARDWARE

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/**/*.txt"), ROOT / "Makefile"}
    - {ROOT / "CHANGELOG.md"}
)
SWITCHES = {"--help", "--resume", "--sanity", "--pack", "--verdicts", "--ir", "--source", "--long", "--print-config"}
"""Flags that are not settings with two values and have no --no- form."""


def command_parser(name):
    (commands,) = cli.make_parser([name])._subparsers._group_actions
    return commands.choices[name]


@cache
def parser_of(name):
    command, _, recipe = name.partition(" ")
    return recipe_parser(recipe, RECIPES.load(recipe)) if recipe else command_parser(command)


PARSERS = [*COMMANDS.names(), *(f"train {name}" for name in RECIPES.names())]


@pytest.mark.parametrize("name", PARSERS)
def test_flags_have_hyphens_and_a_description(name):
    for action in parser_of(name)._actions:
        for flag in action.option_strings:
            assert re.fullmatch(r"-h|--[a-z0-9]+(-[a-z0-9]+)*", flag), flag
        if action.dest != "help":
            assert re.match(r"[A-Z\"]", action.help), f"{action.dest}: {action.help}"
            assert not re.match(r"(What|Who|How|Where|Whether|Of)\b", action.help), action.help
            assert " ".join(action.help.split()).partition(" (default")[0].endswith("."), action.help


@pytest.mark.parametrize("name", PARSERS)
def test_booleans_have_one_form(name):
    parser = parser_of(name)
    for flag in switches(parser) - SWITCHES - {"-h"}:
        other = f"--{flag.removeprefix('--no-')}" if flag.startswith("--no-") else f"--no-{flag[2:]}"
        assert other in flag_names(parser), flag
    settings = [action for action in parser._actions if isinstance(action, BooleanOptionalAction)]
    assert all(action.nargs == 0 for action in settings)


@pytest.mark.parametrize("name", RECIPES.names())
def test_settings_are_grouped(name):
    kind = RECIPES.load(name)
    assert set(kind.DATA) <= set(kind.__dataclass_fields__)
    parser = recipe_parser(name, kind)
    groups = {group.title: {action.dest for action in group._group_actions} for group in parser._action_groups}
    assert all(groups[group] for group in (*GROUPS, "output"))
    assert groups["hardware"] == {field for field in kind.__dataclass_fields__ if field in HARDWARE}
    assert groups["data"] == set(kind.DATA)
    assert {"steps", "batch_size", "seed", "learning_rate"} <= groups["training"]
    assert "steps" not in groups["model"]


@pytest.mark.parametrize("name", RECIPES.names())
def test_other_names_of_settings_name_the_flag(name):
    fields = RECIPES.load(name).__dataclass_fields__
    wrong = {other: our_name for our_name in fields for other in OTHER_NAMES.get(our_name, ()) if other not in fields}
    assert wrong
    for other, our_name in {**wrong, "batch_size": "batch_size", "learning_rate": "learning_rate"}.items():
        flag = other if other in fields else other.replace("_", "-")
        with pytest.raises(
            InputError, match=f"train {name} has no flag '--{flag}'. Use --{our_name.replace('_', '-')}."
        ):
            require_flags(parser_of(f"train {name}"), [f"--{flag}", "3"])


@pytest.mark.parametrize(
    ("arguments", "correct"),
    [
        (["train", "char-lm", "--heads", "2"], "--num-heads"),
        (["train", "char-lm", "--hidden-size=2"], "--d-model"),
        (["train", "char-lm", "--depth", "2"], "--num-layers"),
        (["train", "char-lm", "--no_fsdp"], "--no-fsdp"),
        (["train", "classifier", "DATA", "--conv_size", "2"], "--conv-size"),
        (["generate", "RUN", "--length", "3"], "--max-new-tokens"),
        (["generate", "RUN", "--top_k", "3"], "--top-k"),
        (["translate", "RUN", "--beam", "3"], "--num-beams"),
        (["reproduce", "ba2016/table-1", "--gradient_checkpointing"], "--gradient-checkpointing"),
        (["reproduce", "ba2016/table-1", "--seed", "1"], "--seeds"),
    ],
    ids=" ".join,
)
def test_error_suggests_the_correct_flag(arguments, correct, capsys):
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err.endswith(f". Use {correct}.\n")


def test_error_for_an_unknown_flag_names_the_help():
    with pytest.raises(InputError, match=r"inspect has no flag '--colour'. See fastweights inspect --help."):
        raise unexpected_flag("--colour", ["--text", "--file"], "inspect")


@pytest.mark.parametrize("value", [["--fsdp", "true"], ["--fsdp", "False"], ["--fsdp=true"], ["--no-fsdp", "true"]])
def test_boolean_flag_has_no_value(value, capsys):
    assert cli.main(["train", "char-lm", *value]) == 2
    assert "fsdp must be given as --fsdp or --no-fsdp, got" in capsys.readouterr().err


def test_flags_are_optional():
    require_flags(parser_of("train char-lm"), [])


def test_flags_cannot_be_abbreviated(capsys):
    assert cli.main(["generate", "RUN", "--temp", "1"]) == 2
    assert "generate has no flag '--temp'." in capsys.readouterr().err


def commands_in(page):
    """The commands of a page, in code blocks and in code within a line, without comments."""
    text = page.read_text(encoding="utf-8")
    lines = re.findall(r"^(?:    |\t|\$ )?(?:\S+ )*?\S*fastweights ([a-z]+ .*)$", text, re.MULTILINE)
    for line in [*lines, *re.findall(r"`fastweights ([^`]+)`", text)]:
        yield re.split(r"`|\s#|\s[&|]|;", line)[0].strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_flags_exist(page):
    for command in commands_in(page):
        name, *rest = command.split()
        if name not in COMMANDS.names():
            continue
        recipe = next(iter(rest), "")
        available = flag_names(parser_of(f"train {recipe}" if name == "train" and recipe in RECIPES.names() else name))
        used = set(re.findall(r"(?<!\S)(--[\w-]+)", command))
        if name == "train" and recipe not in RECIPES.names():
            available = set().union(*(flag_names(parser_of(f"train {one}")) for one in RECIPES.names()))
        assert used <= available, f"{command}: {used - available}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_in_text_exist(page):
    """`--flag` on its own is a flag of a command, of a script or of another program."""
    available = set().union(*(flag_names(parser_of(name)) for name in PARSERS)) | OTHER_PROGRAMS
    text = page.read_text(encoding="utf-8")
    used = {re.match(r"--[\w-]+", code)[0] for code in re.findall(r"`(--\w[^`\n]*)`", text)}
    assert used <= available, used - available


C_SOURCES = sorted(Path(cli.__file__).parent.glob("adapters/standalone/*.[ch]"))
OTHER_PROGRAMS = {f"--{name}" for name in ("into", "dry-run", "json", "id", "only", "tokens")}
OTHER_PROGRAMS |= {flag for path in C_SOURCES for flag in re.findall(r'\{"(--[\w-]+)"', path.read_text())}
"""Flags of scripts in benchmarks/, of the C programs, and of other programs."""
