"""Images of the user, with one folder per class."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from fastweights.core.errors import require
from fastweights.tasks.kinds._classes import Classes
from fastweights.tasks.kinds._random import ORDER, random_stream
from fastweights.tasks.kinds.episodes import Episodes
from fastweights.tasks.sources.archives import members
from fastweights.tasks.sources.data_files import MissingFile
from fastweights.tasks.sources.image_sets import (
    ImageSet,
    folders_without_images,
    in_order,
    is_hidden,
    is_image_file,
    log_skipped_files,
    read_images,
)
from fastweights.tasks.sources.splits import PARTS, Split, read_folders, read_tables

HELD_OUT = 5
"""One class in this number is for the test, and one for validation."""


@dataclass(frozen=True)
class ImageFolder(Episodes):
    """Few-shot classification of images from a folder of the user.

    Input -> target: Images with labels -> the label of another image of one of the classes.

    The splits come from `train.csv`, `val.csv` and `test.csv` in the folder, with a line `filename,label` per image, if
    they exist; otherwise from the folders `train`, `val` and `test`, with one folder per class. Otherwise every folder
    is a class, of which a fifth, rounded up, is for the test, a fifth for validation, and the rest for training.
    Files: the images of `folder`, read by pillow: rotated by their EXIF orientation, transparent images on white, or on
    black if their visible parts are nearly white. Hidden files and folders are skipped with a log line.

    Args:
        folder: A folder, or a `.zip`, `.tar` or `.tar.gz` of one.
        channels: 1 for grey images, 3 for colours.
        side: Height and width in pixels; images are scaled to squares by area.

    Source: the layouts of Omniglot and of Ravi and Larochelle 2017.
    """

    folder: str = ""
    channels: int = 3
    side: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.channels in (1, 3), "channels", "1 or 3", self.channels)
        require(1 <= self.side <= 1024, "side", "from 1 to 1024", self.side)

    @property
    def shape(self) -> tuple[int, int]:
        return self.channels, self.side

    @property
    def summary_line(self) -> str:
        sizes = (len(part) for part in self._all[1])
        return "{:,}, {:,} and {:,} classes for training, validation and the test".format(*sizes)

    def classes(self, split: int) -> tuple[Classes, ...]:
        image_set, parts = self._all
        return (Classes(image_set, parts[split], 1),)

    @cached_property
    def _all(self) -> tuple[ImageSet, Split]:
        path = Path(self.folder)
        if not self.folder or not path.exists():
            raise MissingFile(f"folder must be a folder of images, got '{self.folder}'. Say folder=PATH.")
        others: list[str] = []
        read = dict(members(path, _is_image_or_table, others))
        tabled = any(name.rpartition("/")[2] in TABLES for name in read)
        log_skipped_files(path, others, () if tabled else folders_without_images(others, read))
        files_by_name = _inside(read)
        files, parts = self._split(files_by_name)
        image_set = read_images(files, 0, self.side)
        channels, needed = image_set.images.shape[1], {1: "grey images", 3: "images in colours"}
        remedy = f"Say channels={channels}."
        require(channels == self.channels, "folder", f"a folder of {needed[self.channels]}", needed[channels], remedy)
        return image_set, parts

    def _split(self, files_by_name: Mapping[str, bytes]) -> tuple[Mapping[str, list[tuple[str, bytes]]], Split]:
        if TABLES & files_by_name.keys():
            files, parts = read_tables(files_by_name, "")
            return files, tuple(map(np.array, parts))  # type: ignore[return-value]
        files, parts = read_folders(files_by_name, self.folder)
        if parts:
            return files, tuple(map(np.array, parts))  # type: ignore[return-value]
        order = random_stream(self.data_seed, ORDER).permutation(len(files))
        held_out = -(-len(files) // HELD_OUT)
        cut = np.split(order, [len(files) - 2 * held_out, len(files) - held_out])
        return in_order(files), tuple(map(np.sort, cut))  # type: ignore[return-value]


def _is_image_or_table(name: str) -> bool:
    return is_image_file(name) or (name.endswith(".csv") and not is_hidden(name))


def _inside(files: dict[str, bytes]) -> dict[str, bytes]:
    """Images and tables by their names in the folder, without the prefix that archives add, `./` or `images/`."""
    while len({name.partition("/")[0] for name in files}) == 1:
        inside = {name.partition("/")[2]: content for name, content in files.items()}
        if not TABLES & inside.keys() and not any("/" in name for name in inside):
            break  # the only class
        files = inside
    return {name: content for name, content in files.items() if is_image_file(name) or name in TABLES}


TABLES = frozenset(f"{part}.csv" for part in PARTS)
