"""Few-shot classification of images of the user with a trained model, without further training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fastweights.core.errors import invalid, require
from fastweights.tasks.kinds.episodes import Episodes
from fastweights.tasks.sources.archives import members
from fastweights.tasks.sources.image_sets import (
    SUFFIXES,
    folders_without_images,
    is_image_file,
    log_skipped_files,
    square,
)
from fastweights.tasks.sources.images import read_channels

MOST = 10_000
"""Maximum number of images."""


class NamedImage(NamedTuple):
    """An image as input of the model, and the name of its file."""

    name: str
    pixels: NDArray[np.uint8]  # [channels, side, side]


Examples = tuple[tuple[NamedImage, int], ...]
"""Images with the numbers of their classes."""


class Adaptation(NamedTuple):
    """Predictions of a model for images.

    `certainties` are probabilities `[examples + 1, images, classes]`: before any example, after the first, and so on.
    """

    classes: tuple[str, ...]
    examples: Examples
    images: tuple[NamedImage, ...]
    certainties: Tensor


def adapt(model: nn.Module, task: Any, folder: Path) -> Adaptation:
    """Feeds the examples of a folder, with one sub-folder per class, to the model, and classifies the other images.

    Examples are interleaved, the first of every class, then the second. After each one every image is classified, from
    a copy of the state, so that none influences another.

    Raises:
        InputError: The model is no few-shot network, or the folder lacks examples or images.
    """
    few_shot = isinstance(task, Episodes) and hasattr(model, "classify")
    remedy = "Train one with fastweights train few-shot."
    require(few_shot, "task", "a task of few-shot episodes", type(task).__name__, remedy)
    classes, examples, images = _read(folder, task)
    return Adaptation(classes, examples, images, _certainties(model, task, len(classes), examples, images))


@torch.no_grad()
def _certainties(
    model: Any,
    task: Episodes,
    classes: int,
    examples: Examples,
    images: tuple[NamedImage, ...],
) -> Tensor:
    queries = _inputs(task, images)
    delayed, last, state = task.labels == "delayed", task.no_label, None
    outputs = [_classify(model, queries, task.no_label, state)]
    for example, label in examples:
        code, (image, source) = last if delayed else label, _inputs(task, [example])
        _, state = model.classify(image, torch.tensor([[code]]), state, source)
        last = label
        outputs.append(_classify(model, queries, last if delayed else task.no_label, state))
    # Outputs of unused classes are removed.
    return torch.stack(outputs)[..., :classes].softmax(-1)


def _classify(model: Any, queries: tuple[Tensor, Tensor], code: int, state: Any) -> Tensor:
    """Outputs `[images, ways]`, each from a copy of the state."""
    images, sources = queries
    copies = None if state is None else state.select([0] * len(images))
    return model.classify(images, torch.full_like(sources, code), copies, sources)[0][:, 0]


def _inputs(task: Episodes, images: Sequence[NamedImage]) -> tuple[Tensor, Tensor]:
    """Images `[N, 1, channels, side, side]`, and the index of the data set for each of them, `[N, 1]`."""
    pixels = torch.stack([torch.from_numpy(image.pixels) for image in images])
    return pixels[:, None], torch.tensor([[task.source(image.pixels)] for image in images])


def _read(folder: Path, task: Episodes) -> tuple[tuple[str, ...], Examples, tuple[NamedImage, ...]]:
    require(folder.is_dir(), "folder", "a folder of folders with examples, and images to classify", f"'{folder}'")
    channels, side = task.shape
    by_class: dict[str, list[NamedImage]] = {}
    others: list[str] = []
    for number, (name, content) in enumerate(sorted(members(folder, is_image_file, others)), start=1):
        require(number <= MOST, "folder", f"a folder with at most {MOST:,} images", "more")
        pixels = square(read_channels(content, name, channels), side)
        by_class.setdefault(name.rpartition("/")[0], []).append(NamedImage(name, np.array(pixels, order="C")))
    names = [image.name for class_images in by_class.values() for image in class_images]
    for empty in folders_without_images(others, names):
        remedy = f"Add files of {', '.join(SUFFIXES)}, or remove the folder."
        raise invalid(f"class {empty!r}", "a folder with images", "a folder without any", remedy)
    log_skipped_files(folder, others)
    images = by_class.pop("", [])
    _require_classes(by_class, images, task, folder)
    turns = zip(*by_class.values(), strict=True)
    examples = tuple((image, label) for turn in turns for label, image in enumerate(turn))
    return tuple(by_class), examples, tuple(images)


def _require_classes(
    by_class: dict[str, list[NamedImage]], images: list[NamedImage], task: Episodes, folder: Path
) -> None:
    remedy = "Put the examples of each class into a separate folder."
    fits = 2 <= len(by_class) <= task.ways
    require(
        fits, "folder", f"a folder with 2 to {task.ways} folders of examples", f"{len(by_class)} in {folder}", remedy
    )
    remedy = "Put them next to the folders of the classes."
    require(bool(images), "folder", "a folder with images to classify", f"none next to the folders in {folder}", remedy)
    counts = {name: len(examples) for name, examples in by_class.items()}
    fewest = min(counts, key=counts.__getitem__)
    most = max(counts.values())
    requirement = f"a folder with as many examples as the others, {most}"
    require(counts[fewest] == most, f"class {fewest!r}", requirement, counts[fewest])
