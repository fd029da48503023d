"""Classifies sequences with a run of a classifier, or images with a run of a few-shot network.

Files of sequences have a format of the training data: texts, arrays, tables, or folders of these. They need no labels.
A few-shot network takes one folder, which has a sub-folder of example images per class, next to the images to classify.
It learns these classes from the examples without training, and writes an HTML page with its predictions after each
example.
"""

import argparse
from pathlib import Path
from typing import Any

from fastweights.commands._arguments import add_run, kind_of, path, require_kind
from fastweights.core.errors import require
from fastweights.core.printable import printable

PAGE = Path("classify.html")


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run, files, and the path of the page."""
    add_run(command)
    command.add_argument("paths", type=path, nargs="+", metavar="PATH", help="File or folder of sequences or images.")
    page = f"Path of the HTML page of a few-shot network. (default: {PAGE})"
    command.add_argument("--output", type=path, metavar="FILE", help=page)


def run(options: argparse.Namespace) -> int:
    """Prints one line per sequence or image: its name, the most probable class and the probability."""
    from fastweights.experiments.load import load
    from fastweights.tasks import SequenceFiles
    from fastweights.tasks.kinds.episodes import Episodes

    model, task = load(options.folder, options.layer)
    if isinstance(task, Episodes) and hasattr(model, "classify"):
        _classify_images(model, task, options)
        return 0
    classifier = isinstance(task, SequenceFiles)
    require_kind(classifier, options.folder, kind_of(model), "a classifier or a few-shot network")
    require(options.output is None, "output", "left out for a classifier of sequences", options.output)
    _classify_sequences(model, task, options)
    return 0


def _classify_sequences(model: Any, task: Any, options: argparse.Namespace) -> None:
    from fastweights.experiments.classification import classify

    for file in options.paths:
        for name, label, probability in classify(model, task, file):
            print(f"{printable(name)}: {printable(label)}, {100 * probability:.0f} %")


def _classify_images(model: Any, task: Any, options: argparse.Namespace) -> None:
    from fastweights.core.files import write_atomically
    from fastweights.experiments.adaptation import adapt
    from fastweights.report.adaptation_page import adaptation_page

    page, count = options.output or PAGE, len(options.paths)
    require(count == 1, "PATH", "one folder for a few-shot network", f"{count} paths")
    adaptation = adapt(model, task, options.paths[0])
    for image, certainties in zip(adaptation.images, adaptation.certainties[-1], strict=True):
        best = int(certainties.argmax())
        label, probability = adaptation.classes[best], float(certainties[best])
        print(f"{printable(image.name)}: {printable(label)}, {100 * probability:.0f} %")
    shots = f"{task.shots} example{'' if task.shots == 1 else 's'}"
    trained = f"{task.ways} classes with {shots} each and {task.labels} labels"
    html = adaptation_page(adaptation, str(options.folder), trained)
    write_atomically(page, html.encode(errors="backslashreplace"))
    print(f"The page is {page}.")
