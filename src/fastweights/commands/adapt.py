"""Names your pictures by a few examples of each class; nothing is trained.

It takes a run of a few-shot network.
"""

import argparse
from pathlib import Path

from fastweights.commands._arguments import add_run, folder
from fastweights.core.printable import printable


def add(command: argparse.ArgumentParser) -> None:
    """A run, pictures, and where the page goes."""
    add_run(command)
    within = "folders with examples, one a class, all with as many, and beside them the pictures to name"
    command.add_argument("pictures", type=folder, metavar="FOLDER", help=within)
    command.add_argument("--page", type=Path, default=Path("adapt.html"), metavar="FILE", help="default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Prints the names, and writes the page."""
    from fastweights.core.files import write_atomically
    from fastweights.experiments.adaptation import adapt
    from fastweights.experiments.load import load
    from fastweights.report.adaptation_page import adaptation_page

    model, task = load(options.folder, options.layer)
    found = adapt(model, task, options.pictures)
    for seen, certainties in zip(found.pictures, found.certainties[-1], strict=True):
        best = int(certainties.argmax())
        print(f"{printable(seen.name)}: {printable(found.classes[best])}, {100 * float(certainties[best]):.0f} %")
    shots = f"{task.shots} example{'' if task.shots == 1 else 's'}"
    trained = f"{task.ways} classes with {shots} each and {task.labels} labels"
    write_atomically(
        options.page, adaptation_page(found, str(options.folder), trained).encode(errors="backslashreplace")
    )
    print(f"The page is {options.page}.")
    return 0
