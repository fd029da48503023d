"""What the memories of a language model write, forget and read in a text, as a page."""

import argparse
from pathlib import Path

from fastweights.commands._arguments import add_run
from fastweights.commands._shown import memories, rates
from fastweights.core.errors import require
from fastweights.core.files import normalised


def add(command: argparse.ArgumentParser) -> None:
    """A run, a text, and where the page goes."""
    add_run(command)
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=normalised, help="what the model reads")
    source.add_argument("--file", type=Path, help="a UTF-8 text file that it reads")
    most = "tokens, from the beginning; default: %(default)s"
    command.add_argument("--most", type=int, default=300, metavar="N", help=most)
    command.add_argument("--page", type=Path, default=Path("inspect.html"), metavar="FILE", help="default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Writes the page."""
    from fastweights.core.files import read_text, write_atomically
    from fastweights.experiments.load import load
    from fastweights.inspect import page, watch_text

    require(options.most >= 1, "most", "at least 1", options.most)
    model, text = load(options.folder, options.layer)
    require(hasattr(model, "stream"), "run", "one of a language model", f"{options.folder}, another model's")
    words = options.text if options.file is None else read_text(options.file, "file")
    require(bool(words), "text", "at least one character", "none")
    found, tokens = watch_text(model, text, words, options.most)
    write_atomically(
        options.page, page(found, tokens, f"What {options.folder} remembers").encode(errors="backslashreplace")
    )
    print(f"The page is {options.page}: {memories(len(found))}, {len(tokens)} tokens.")
    if told := rates(found):
        print(told)
    return 0
