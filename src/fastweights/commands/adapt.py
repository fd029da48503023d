"""Classifies your images by a few examples of each class, without training.

It needs a run of a few-shot network.
"""

import argparse
from pathlib import Path

from fastweights.commands._arguments import add_run, folder
from fastweights.core.printable import printable


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run, images, and the file of the page."""
    add_run(command)
    within = "one folder per class with equally many examples, next to the images to classify"
    command.add_argument("pictures", type=folder, metavar="FOLDER", help=within)
    command.add_argument("--page", type=Path, default=Path("adapt.html"), metavar="FILE", help="default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Prints the labels, and writes the page."""
    from fastweights.core.files import write_atomically
    from fastweights.experiments.adaptation import adapt
    from fastweights.experiments.load import load
    from fastweights.report.adaptation_page import adaptation_page

    model, task = load(options.folder, options.layer)
    adaptation = adapt(model, task, options.pictures)
    for picture, certainties in zip(adaptation.pictures, adaptation.certainties[-1], strict=True):
        best = int(certainties.argmax())
        print(
            f"{printable(picture.name)}: {printable(adaptation.classes[best])}, {100 * float(certainties[best]):.0f} %"
        )
    shots = f"{task.shots} example{'' if task.shots == 1 else 's'}"
    trained = f"{task.ways} classes with {shots} each and {task.labels} labels"
    write_atomically(
        options.page, adaptation_page(adaptation, str(options.folder), trained).encode(errors="backslashreplace")
    )
    print(f"The page is {options.page}.")
    return 0
