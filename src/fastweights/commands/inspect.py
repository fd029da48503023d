"""Analyses the memories of a language model on a text, as an HTML page."""

import argparse
from pathlib import Path

from fastweights.commands._arguments import add_run
from fastweights.commands._shown import memories, rates
from fastweights.core.errors import require
from fastweights.core.files import normalised


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run, a text, and the file of the page."""
    add_run(command)
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=normalised, help="text that the model reads")
    source.add_argument("--file", type=Path, help="UTF-8 text file that the model reads")
    most = "maximum number of tokens; default: %(default)s"
    command.add_argument("--most", type=int, default=300, metavar="N", help=most)
    command.add_argument("--page", type=Path, default=Path("inspect.html"), metavar="FILE", help="default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Writes the page."""
    from fastweights.core.files import read_text, write_atomically
    from fastweights.experiments.load import load
    from fastweights.inspect import render_html, watch_text

    require(options.most >= 1, "most", "at least 1", options.most)
    model, text = load(options.folder, options.layer)
    require(hasattr(model, "stream"), "run", "one of a language model", f"{options.folder} of another kind of model")
    words = options.text if options.file is None else read_text(options.file, "file")
    require(bool(words), "text", "at least one character", "none")
    contents, tokens = watch_text(model, text, words, options.most)
    write_atomically(
        options.page, render_html(contents, tokens, f"Memories of {options.folder}").encode(errors="backslashreplace")
    )
    print(f"The page is {options.page}: {memories(len(contents))}, {len(tokens)} tokens.")
    if ranges := rates(contents):
        print(ranges)
    return 0
