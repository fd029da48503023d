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
from fastweights.tasks.sources.images import read_channels
from fastweights.tasks.sources.pictures import SUFFIXES, is_picture, square, tell_left_out, without_pictures

MOST = 10_000
"""Maximum number of images."""


class Picture(NamedTuple):
    """An image as input of the model, and the name of its file."""

    name: str
    image: NDArray[np.uint8]  # [channels, side, side]


class Adaptation(NamedTuple):
    """Predictions of a model for images.

    `certainties` are probabilities `[examples + 1, pictures, classes]`: before any example, after the first, and so on.
    """

    classes: tuple[str, ...]
    examples: tuple[tuple[Picture, int], ...]
    pictures: tuple[Picture, ...]
    certainties: Tensor


def adapt(model: nn.Module, task: Any, folder: Path) -> Adaptation:
    """Feeds the examples of a folder, with one sub-folder per class, to the model, and classifies the other images.

    Examples are interleaved, the first of every class, then the second. After each one every image is classified, from
    a copy of the state, so that none influences another.

    Raises:
        InputError: The model is no few-shot network, or the folder lacks examples or images.
    """
    few_shot = isinstance(task, Episodes) and hasattr(model, "name")
    remedy = "Train one with fastweights train few-shot."
    require(few_shot, "task", "one of few-shot episodes", type(task).__name__, remedy)
    classes, examples, pictures = _read(folder, task)
    return Adaptation(classes, examples, pictures, _certainties(model, task, len(classes), examples, pictures))


@torch.no_grad()
def _certainties(
    model: Any, task: Episodes, classes: int, examples: tuple[tuple[Picture, int], ...], pictures: tuple[Picture, ...]
) -> Tensor:
    queries = _inputs(task, pictures)
    delayed, last, state = task.labels == "delayed", task.no_label, None
    outputs = [_classify(model, queries, task.no_label, state)]
    for example, label in examples:
        code, (image, source) = last if delayed else label, _inputs(task, [example])
        _, state = model.name(image, torch.tensor([[code]]), state, source)
        last = label
        outputs.append(_classify(model, queries, last if delayed else task.no_label, state))
    # Outputs of unused classes are removed.
    return torch.stack(outputs)[..., :classes].softmax(-1)


def _classify(model: Any, queries: tuple[Tensor, Tensor], code: int, state: Any) -> Tensor:
    """Outputs `[pictures, ways]`, each from a copy of the state."""
    images, sources = queries
    copies = None if state is None else state.select([0] * len(images))
    return model.name(images, torch.full_like(sources, code), copies, sources)[0][:, 0]


def _inputs(task: Episodes, pictures: Sequence[Picture]) -> tuple[Tensor, Tensor]:
    """Images `[N, 1, channels, side, side]`, and the index of the data set for each of them, `[N, 1]`."""
    images = torch.stack([torch.from_numpy(picture.image) for picture in pictures])
    return images[:, None], torch.tensor([[task.source(picture.image)] for picture in pictures])


def _read(folder: Path, task: Episodes) -> tuple[tuple[str, ...], tuple[tuple[Picture, int], ...], tuple[Picture, ...]]:
    require(folder.is_dir(), "folder", "a folder of folders with examples, and images to classify", f"'{folder}'")
    channels, side = task.shape
    by_home: dict[str, list[Picture]] = {}
    others: list[str] = []
    for number, (name, content) in enumerate(sorted(members(folder, is_picture, others)), start=1):
        require(number <= MOST, "folder", f"a folder with at most {MOST:,} images", "more")
        image = square(read_channels(content, name, channels), side)
        by_home.setdefault(name.rpartition("/")[0], []).append(Picture(name, np.array(image, order="C")))
    names = [picture.name for home in by_home.values() for picture in home]
    for empty in without_pictures(others, names):
        remedy = f"Add files of {', '.join(SUFFIXES)}, or remove the folder."
        raise invalid(f"class {empty!r}", "a folder with images", "a folder without any", remedy)
    tell_left_out(folder, others)
    pictures = by_home.pop("", [])
    _require_classes(by_home, pictures, task, folder)
    turns = zip(*by_home.values(), strict=True)
    examples = tuple((picture, label) for turn in turns for label, picture in enumerate(turn))
    return tuple(by_home), examples, tuple(pictures)


def _require_classes(by_home: dict[str, list[Picture]], pictures: list[Picture], task: Episodes, folder: Path) -> None:
    remedy = "Put the examples of each class into a separate folder."
    fits = 2 <= len(by_home) <= task.ways
    require(
        fits, "folder", f"a folder with 2 to {task.ways} folders of examples", f"{len(by_home)} in {folder}", remedy
    )
    remedy = "Put them next to the folders of the classes."
    require(
        bool(pictures), "folder", "a folder with images to classify", f"none next to the folders in {folder}", remedy
    )
    counts = {name: len(examples) for name, examples in by_home.items()}
    fewest = min(counts, key=counts.__getitem__)
    most = max(counts.values())
    requirement = f"a folder with as many examples as the others, {most}"
    require(counts[fewest] == most, f"class {fewest!r}", requirement, counts[fewest])
