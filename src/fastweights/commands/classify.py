"""Classifies sequences with a run of a classifier.

Files have a format of its training data: texts, arrays, tables or folders of these. They need no labels.
"""

import argparse

from fastweights.commands._arguments import add_run, folder
from fastweights.core.printable import printable


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run and files."""
    add_run(command)
    command.add_argument("files", type=folder, nargs="+", metavar="FILE", help="a file or a folder of sequences")


def run(options: argparse.Namespace) -> int:
    """Prints one line per sequence: its name, the most probable class and the probability."""
    from fastweights.experiments.classification import classify
    from fastweights.experiments.load import load

    model, task = load(options.folder, options.layer)
    for path in options.files:
        for name, label, probability in classify(model, task, path):
            print(f"{printable(name)}: {printable(label)}, {100 * probability:.0f} %")
    return 0
