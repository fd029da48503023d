"""Analyses the memories of a language model on a text, as an HTML page."""

import argparse
from pathlib import Path

from fastweights.commands._arguments import add_output, add_run, kind_of, path, require_kind
from fastweights.commands._results import memories, rates
from fastweights.core.errors import require
from fastweights.core.files import normalised


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run, a text, and the file of the page."""
    add_run(command)
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=normalised, metavar="TEXT", help="Text that the model reads.")
    source.add_argument("--file", type=path, metavar="FILE", help="UTF-8 text file that the model reads.")
    most = "Maximum number of tokens of the text."
    command.add_argument("--max-tokens", type=int, default=300, metavar="N", help=most)
    add_output(command, Path("inspect.html"))


def run(options: argparse.Namespace) -> int:
    """Writes the page."""
    from fastweights.core.files import read_text, write_atomically
    from fastweights.experiments.load import load
    from fastweights.inspect import analyze_text, render_html

    require(options.max_tokens >= 1, "max_tokens", "at least 1", options.max_tokens)
    model, text = load(options.folder, options.layer)
    require_kind(hasattr(model, "stream"), options.folder, kind_of(model), "a language model")
    words = options.text if options.file is None else read_text(options.file, "file")
    require(bool(words), "text", "at least one character", "none")
    contents, tokens = analyze_text(model, text, words, options.max_tokens)
    write_atomically(
        options.output, render_html(contents, tokens, f"Memories of {options.folder}").encode(errors="backslashreplace")
    )
    print(f"The page is {options.output}: {memories(len(contents))}, {len(tokens)} tokens.")
    if ranges := rates(contents):
        print(ranges)
    return 0
