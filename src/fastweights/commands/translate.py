"""Translates sentences with a run of a translator."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from fastweights.commands._arguments import add_run, kind_of, require_kind
from fastweights.core.files import normalised, unicode_of


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run, sentences, and options of beam search."""
    add_run(command)
    lines = "Sentences to translate. Without any, the lines of standard input, in UTF-8."
    command.add_argument("sentences", type=normalised, nargs="*", metavar="SENTENCE", help=lines)
    command.add_argument("--num-beams", type=int, default=5, metavar="N", help="Number of beams of beam search.")
    penalty = "Exponent of the length that divides log-probabilities. Larger values favour long translations."
    command.add_argument("--length-penalty", type=float, default=1.0, metavar="X", help=penalty)


def run(options: argparse.Namespace) -> int:
    """Prints the best hypothesis of every sentence, one per line; blank lines stay blank."""
    from fastweights.experiments.load import load
    from fastweights.tasks.kinds.pairs import Pairs
    from fastweights.training.loops.translation import AT_ONCE

    model, task = load(options.folder, options.layer)
    require_kind(isinstance(task, Pairs), options.folder, kind_of(model), "a translator")
    lines = iter(options.sentences) if options.sentences else _read()
    # At a terminal, every line is answered at once.
    together = 1 if sys.stdin.isatty() and not options.sentences else AT_ONCE
    while batch := list(islice(lines, together)):
        print("\n".join(_translate_lines(model, task, batch, options)), flush=True)
    return 0


def _translate_lines(model: Any, task: Any, lines: Sequence[str], options: argparse.Namespace) -> list[str]:
    from fastweights.tasks.kinds.pairs import Sentences
    from fastweights.training.loops.translation import translate

    translations = [" ".join(line.split("\n")).strip() for line in lines]
    positions = [n for n, line in enumerate(translations) if line]
    sources = Sentences.of(task.encode(translations[n]) for n in positions)
    for n, sentence in zip(
        positions, translate(model, task, sources, options.num_beams, options.length_penalty), strict=True
    ):
        translations[n] = " ".join(sentence.splitlines())
    return translations


def _read() -> Iterator[str]:
    """The lines of standard input."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        yield normalised(unicode_of(line, f"line {number}", "standard input"))
