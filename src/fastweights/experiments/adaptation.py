"""A trained model that learns a user's own classes while it looks at examples: nothing is trained."""

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
"""Pictures that are looked at."""


class Seen(NamedTuple):
    """A picture as the model sees it, and the name of its file."""

    name: str
    image: NDArray[np.uint8]  # [channels, side, side]


class Adaptation(NamedTuple):
    """What a model came to say of pictures.

    `certainties` are probabilities `[examples + 1, pictures, classes]`: before any example, after the first, and so on.
    """

    classes: tuple[str, ...]
    examples: tuple[tuple[Seen, int], ...]
    pictures: tuple[Seen, ...]
    certainties: Tensor


def adapt(model: nn.Module, task: Any, folder: Path) -> Adaptation:
    """Shows the model the examples in folders of a folder, a class each, and asks what the pictures beside them are.

    Examples come in turns, the first of every class, then the second. After each one every picture is named, from a
    copy of the state, so that none is influenced by another.

    Raises:
        InputError: The model names no pictures, or the folder does not hold what it needs.
    """
    few_shot = isinstance(task, Episodes) and hasattr(model, "name")
    remedy = "Train one with fastweights train few-shot."
    require(few_shot, "run", "one of a few-shot network", "another model's", remedy)
    classes, examples, pictures = _read(folder, task)
    return Adaptation(classes, examples, pictures, _certainties(model, task, len(classes), examples, pictures))


@torch.no_grad()
def _certainties(
    model: Any, task: Episodes, classes: int, examples: tuple[tuple[Seen, int], ...], pictures: tuple[Seen, ...]
) -> Tensor:
    asked = _shown(task, pictures)
    delayed, last, state = task.labels == "delayed", task.no_label, None
    found = [_ask(model, asked, task.no_label, state)]
    for example, label in examples:
        told, (image, source) = last if delayed else label, _shown(task, [example])
        _, state = model.name(image, torch.tensor([[told]]), state, source)
        last = label
        found.append(_ask(model, asked, last if delayed else task.no_label, state))
    # What it might call a class that is not there is left out.
    return torch.stack(found)[..., :classes].softmax(-1)


def _ask(model: Any, asked: tuple[Tensor, Tensor], told: int, state: Any) -> Tensor:
    """Outputs `[pictures, ways]`, each from a copy of the state."""
    images, sources = asked
    copies = None if state is None else state.members([0] * len(images))
    return model.name(images, torch.full_like(sources, told), copies, sources)[0][:, 0]


def _shown(task: Episodes, pictures: Sequence[Seen]) -> tuple[Tensor, Tensor]:
    """Pictures `[N, 1, channels, side, side]`, and where each of them might be from, `[N, 1]`."""
    images = torch.stack([torch.from_numpy(seen.image) for seen in pictures])
    return images[:, None], torch.tensor([[task.source(seen.image)] for seen in pictures])


def _read(folder: Path, task: Episodes) -> tuple[tuple[str, ...], tuple[tuple[Seen, int], ...], tuple[Seen, ...]]:
    require(folder.is_dir(), "folder", "a folder of folders with examples, and pictures to name", f"'{folder}'")
    channels, side = task.shape
    by_home: dict[str, list[Seen]] = {}
    others: list[str] = []
    for number, (name, content) in enumerate(sorted(members(folder, is_picture, others)), start=1):
        require(number <= MOST, "folder", f"of at most {MOST:,} pictures", "more")
        image = square(read_channels(content, name, channels), side)
        by_home.setdefault(name.rpartition("/")[0], []).append(Seen(name, np.ascontiguousarray(image)))
    names = [seen.name for home in by_home.values() for seen in home]
    for empty in without_pictures(others, names):
        remedy = f"Add files of {', '.join(SUFFIXES)}, or remove the folder."
        raise invalid(f"class {empty!r}", "with pictures", "a folder without any", remedy)
    tell_left_out(folder, others)
    pictures = by_home.pop("", [])
    _require_classes(by_home, pictures, task, folder)
    turns = zip(*by_home.values(), strict=True)
    examples = tuple((seen, label) for turn in turns for label, seen in enumerate(turn))
    return tuple(by_home), examples, tuple(pictures)


def _require_classes(by_home: dict[str, list[Seen]], pictures: list[Seen], task: Episodes, folder: Path) -> None:
    remedy = "Put the examples of each class into a folder of their own."
    fits = 2 <= len(by_home) <= task.ways
    require(fits, "folder", f"with 2 to {task.ways} folders of examples", f"{len(by_home)} in {folder}", remedy)
    remedy = "Put them beside the folders of the classes."
    require(bool(pictures), "folder", "with pictures to name", f"none beside the folders in {folder}", remedy)
    counts = {name: len(seen) for name, seen in by_home.items()}
    fewest = min(counts, key=counts.__getitem__)
    most = max(counts.values())
    needed = f"with as many examples as the others, {most}"
    require(counts[fewest] == most, f"class {fewest!r}", needed, counts[fewest])
