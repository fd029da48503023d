"""Text from files and arguments cannot control a terminal, reorder a page, or add links and elements to a report."""

import ast
import io
import logging
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

import fastweights
from fastweights import cli
from fastweights.commands._streams import printable_streams
from fastweights.core.printable import printable
from fastweights.core.sealed_json import read_sealed, write_sealed
from fastweights.experiments.adaptation import Adaptation, NamedImage
from fastweights.inspect.memory_trace import MemoryTrace
from fastweights.inspect.page import render_html
from fastweights.registry import COMMANDS
from fastweights.report.adaptation_page import adaptation_page
from fastweights.report.document import Bullets, Figure, Grid, Heading, Paragraph, to_html, to_markdown
from fastweights.report.learning_curve import draw_learning_curve
from fastweights.training.progress import Bar, PlainConsole
from fastweights.training.run_folder.run import Run

HOSTILE = [
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "\u202egnp.exe",
    "\u2066a\u2069",
    "\x00\x08\x7f",
    "\udce9",
    "\r\nfastweights: all is well",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "&lt;b&gt; &#106;",
    '" onload="alert(1)',
    "[a](javascript:alert(1))",
    "![a](file:///etc/passwd)",
    "[a]: javascript:alert(1)",
    "<javascript:alert(1)>",
    "``[a](javascript:alert(1))`",
    "`a\\|[b](javascript:1)`",
    "a\\|b|c",
    "# no heading",
    "- no item",
    "1. no item",
    "> no quotation",
    "---",
    "===",
    "**bold** _slanted_ ~~gone~~",
    "${x}$ [[b]]",
]
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
texts = st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=8)), min_size=1, max_size=4).map("".join)


# One function


@given(texts, st.sampled_from(["", "\n\t"]))
def test_printable_text_has_no_control_characters(text, allowed):
    output = printable(text, allowed)
    assert not CONTROLS.search(output)
    assert printable(output, allowed) == output
    assert output.replace("\n", "").replace("\t", "").isprintable() or all(
        c in allowed or c.isprintable() or not c.isascii() for c in output
    )


@pytest.mark.parametrize("text", ["Übung", "日本語", "क्\u200dष", "👩\u200d🔬", "a b", "naïve\u0301"])
def test_text_of_any_language_is_printable(text):
    assert printable(text) == text


# Terminals


@given(texts)
def test_all_output_is_printable(text):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = streams
    try:
        with printable_streams():
            print(text, end=text)
            logging.lastResort.handle(logging.makeLogRecord({"msg": "%s", "args": (text,), "levelno": 30}))
            console = PlainConsole()
            console.print(text)
            table = Table(text, title=text)
            table.add_row(text)
            console.print(table)
            with Bar(console, 1, 0) as bar:
                bar.note(text)
    finally:
        sys.stdout, sys.stderr = before
    for stream in streams:
        stream.flush()
        output = stream.buffer.getvalue().decode()
        assert output
        assert not CONTROLS.search(output)


def test_terminal_gets_only_styles_of_the_library():
    stream = io.StringIO()
    stream.isatty = lambda: True
    console = PlainConsole()
    console.file = stream
    console._color_system = console._detect_color_system() if console.is_terminal else None
    for text in HOSTILE:
        with Bar(PlainConsole(), 1, 0):
            console.print(text, style="red")
    output = re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())
    assert not CONTROLS.search(output)


def test_streams_are_restored(capsys):
    before = sys.stdout, sys.stderr
    assert cli.main(["list", "rules"]) == 0
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert cli.main(["evaluate", "/no/such/run"]) == 2
    assert (sys.stdout, sys.stderr) == before


def test_only_commands_print():
    """Other parts return results, or print them on a console that is an argument."""
    root = Path(fastweights.__file__).parent
    for path in root.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        printing = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
        assert not printing or path.parent.name == "commands" or path.name == "cli.py", path


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory):
    """A run whose vocabulary has control characters."""
    run = tmp_path_factory.mktemp("hostile") / "run"
    sizes = ["--preset", "smoke", "--steps", "2", "--characters", "6000", "--sample", "3"]
    assert cli.main(["train", "char-lm", *sizes, "--run", str(run)]) == 0
    content = read_sealed(run / "config.json")
    tokens = content["task"]["tokens"]
    for letter, character in {"e": "\x1b", "t": "\x9b", "o": "\u202e", "h": "\x07", "n": "\u2066"}.items():
        tokens = tokens.replace(letter, character)
    content["task"]["tokens"] = tokens
    write_sealed(run / "config.json", content)
    return run


def test_commands_print_no_control_character_of_a_vocabulary(hostile_run, tmp_path, capsys):
    generate = ["generate", str(hostile_run), "--prompt", "a", "--max-new-tokens", "200", "--seed", "1"]
    assert cli.main(generate) == 0
    assert cli.main([*generate, "--prompt", "b"]) == 0
    page = tmp_path / "p.html"
    assert cli.main(["inspect", str(hostile_run), "--text", "a\x1b\u202eb\x9b", "--output", str(page)]) == 0
    cli.main(["evaluate", str(hostile_run)])
    assert cli.main(["report", str(hostile_run.parent)]) == 0
    captured = capsys.readouterr()
    assert "\\x1b" in captured.out
    assert not CONTROLS.search(captured.out + captured.err)
    for path in [page, *hostile_run.parent.glob("report.*")]:
        assert not CONTROLS.search(path.read_text(encoding="utf-8")), path


STRINGS = [text for text in HOSTILE if "\x00" not in text]
PLACES = (
    lambda text: [text],
    lambda text: [text, text],
    lambda text: [text, f"--{text}"],
    lambda text: ["--layer", text, text],
    lambda text: [f"--page={text}", text],
)
"""Arguments of a command with a text in different places."""


def places_of(command, number, is_first):
    """The places of a text in the arguments of a command: `make test` has one, in turn, and `make test-all` all."""
    first = (COMMANDS.names().index(command) + number) % len(PLACES)
    return PLACES[first : first + 1] if is_first else PLACES[:first] + PLACES[first + 1 :]


@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", COMMANDS.names())
def test_commands_print_no_control_character_of_an_argument(name, is_first, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number, text in enumerate(STRINGS):
        for place in places_of(name, number, is_first):
            arguments = place(text)
            try:
                status = cli.main([name, *arguments])
            except SystemExit as stop:
                status = stop.code
            captured = capsys.readouterr()
            assert status == 2, arguments
            assert not CONTROLS.search(captured.out + captured.err)
            assert len(captured.err.splitlines()) == 1, captured.err


# Pages


class Elements(HTMLParser):
    """The names of all elements of a page, with the attributes that load a resource or run a script."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, [(n, v) for n, v in attributes if n.startswith("on") or n in ("src", "href")]))


def blocks_of(text):
    return [
        Heading(1, text),
        Heading(2, text),
        Heading(3, text),
        Paragraph(text),
        Bullets([text, text]),
        Grid([text, "b"], [[text, text]]),
        Figure("a", text, b"<svg/>"),
    ]


@given(texts)
def test_elements_of_a_page_do_not_depend_on_its_texts(text):
    hostile, harmless = (Elements(to_html(words, blocks_of(words))).elements for words in (text, "a"))

    def outside_code(elements):
        return [(tag, [n for n, _ in attributes]) for tag, attributes in elements if tag != "code"]

    assert outside_code(hostile) == outside_code(harmless)
    for _, attributes in hostile:
        assert all(value.startswith(("data:image/", "#")) for _, value in attributes)
    assert not CONTROLS.search(to_html(text, blocks_of(text)))


@given(texts.filter(str.split))
def test_elements_of_markdown_do_not_depend_on_its_texts(text):
    markdown_it = pytest.importorskip("markdown_it")
    parser = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])

    def elements(words):
        tokens = parser.parse(to_markdown(blocks_of(words), "figures"))
        flat = [token for outer in tokens for token in [outer, *(outer.children or [])]]
        return [(t.type, t.attrGet("href") or t.attrGet("src")) for t in flat if t.type not in ("text", "code_inline")]

    elements_of_text = elements(text)
    assert [kind for kind, _ in elements_of_text] == [kind for kind, _ in elements("a")]
    assert all(not target or re.match(r"#|https?://|figures/a\.svg$", target) for _, target in elements_of_text)
    assert not CONTROLS.search(to_markdown(blocks_of(text), "figures"))


@given(texts.map(lambda text: " ".join(text.split())).filter(lambda text: text and "`" not in text))
def test_markdown_shows_a_text_unchanged(text):
    markdown_it = pytest.importorskip("markdown_it")
    parser = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for block in (Paragraph(text), Bullets([text]), Grid(["x"], [[text]])):
        tokens = parser.parse(to_markdown([block], "figures"))
        inline = [token for token in tokens if token.type == "inline"][-1]
        assert "".join(child.content for child in inline.children) == printable(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_elements_of_pages_of_models_do_not_depend_on_names(text):
    def classify_page(name):
        image = NamedImage(name, np.zeros((1, 2, 2), np.uint8))
        adaptation = Adaptation((name, "b"), ((image, 0), (image, 1)), (image,), torch.full((3, 1, 2), 0.5))
        return adaptation_page(adaptation, name, name)

    def inspect_page(name):
        contents = MemoryTrace(name, name, {name: torch.zeros(1, 1)}, {}, torch.zeros(1, 1, 1), False, ())
        return render_html([contents], [name], name)

    for make_page in (classify_page, inspect_page):
        whole = make_page(text)
        assert [tag for tag, _ in Elements(whole).elements] == [tag for tag, _ in Elements(make_page("a")).elements]
        assert not CONTROLS.search(whole)
        assert not any(n.startswith("on") for _, attributes in Elements(whole).elements for n, _ in attributes)


@pytest.mark.parametrize("text", [name for name in HOSTILE if "/" not in name and "\x00" not in name])
@pytest.mark.filterwarnings("ignore:Glyph")
def test_learning_curve_is_drawn_for_any_names(tmp_path, text):
    from fastweights.core.metric import BITS

    folder = tmp_path / f"a{text}$\\frac{{$"
    folder.mkdir()
    lines = [{"step": step, "train": {"bits": 1.0}, "validation": {"bits": float(step)}} for step in (0, 1)]
    assert draw_learning_curve(folder, lines, BITS, {f"{text}$_$": 0.5}).is_file()


# Arguments that are not UTF-8


NOT_UTF_8 = os.fsdecode(b"caf\xe9")


def options_of(name):
    """The options of a command that have a value."""
    import argparse

    command = cli.make_parser([name])._subparsers._group_actions[0].choices[name]
    return [
        a.option_strings[-1] for a in command._actions if a.option_strings and not isinstance(a, argparse._HelpAction)
    ]


@pytest.mark.parametrize("name", COMMANDS.names())
def test_argument_that_is_not_utf_8_gives_an_error_of_one_line(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for option in options_of(name):
        for arguments in ([option, NOT_UTF_8], [f"{option}={NOT_UTF_8}"], ["a", option, NOT_UTF_8]):
            assert cli.main([name, *arguments]) == 2
            message = capsys.readouterr().err
            assert len(message.splitlines()) == 1
            assert "must be UTF-8, got '" in message
            assert "caf\\udce9" in message
    assert cli.main([name, NOT_UTF_8]) == 2
    assert "argument must be UTF-8" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_run_with_any_vocabulary_has_a_config(hostile_run):
    assert Run.open(hostile_run).config()["task"]["tokens"]
