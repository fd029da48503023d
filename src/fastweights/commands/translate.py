"""Translates sentences by a run of a translator."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from fastweights.commands._arguments import add_run
from fastweights.core.errors import require
from fastweights.core.files import normalised, unicode_of


def add(command: argparse.ArgumentParser) -> None:
    """A run, what to translate, and how."""
    add_run(command)
    lines = "left out: every line of standard input, UTF-8, becomes a line"
    command.add_argument("sentences", type=normalised, nargs="*", metavar="SENTENCE", help=lines)
    command.add_argument("--beam", type=int, default=5, help="hypotheses that are kept, default: %(default)s")
    longer = "power of the length that log-probabilities are divided by, default: %(default)s"
    command.add_argument("--penalty", type=float, default=1.0, help=longer)


def run(options: argparse.Namespace) -> int:
    """Prints the best hypothesis of every sentence, a line each; blank lines stay blank."""
    from fastweights.experiments.load import load
    from fastweights.tasks.kinds.pairs import Pairs
    from fastweights.training.loops.translation import AT_ONCE

    model, task = load(options.folder, options.layer)
    require(isinstance(task, Pairs), "run", "one of a translator", f"{options.folder}, another model's")
    lines = iter(options.sentences) if options.sentences else _read()
    # Who types waits for every line.
    together = 1 if sys.stdin.isatty() and not options.sentences else AT_ONCE
    while batch := list(islice(lines, together)):
        print("\n".join(_translated(model, task, batch, options)), flush=True)
    return 0


def _translated(model: Any, task: Any, lines: Sequence[str], options: argparse.Namespace) -> list[str]:
    from fastweights.tasks.kinds.pairs import Sentences
    from fastweights.training.loops.translation import translate

    said = [" ".join(line.split("\n")).strip() for line in lines]
    places = [place for place, line in enumerate(said) if line]
    sources = Sentences.of(task.encode(said[place]) for place in places)
    for place, sentence in zip(places, translate(model, task, sources, options.beam, options.penalty), strict=True):
        said[place] = " ".join(sentence.splitlines())
    return said


def _read() -> Iterator[str]:
    """The lines of standard input."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        yield normalised(unicode_of(line, f"line {number}", "standard input"))
