"""Mini-ImageNet: photographs of a hundred classes."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from fastweights.core.errors import require
from fastweights.tasks.data_sets.mini_imagenet import ARCHIVE
from fastweights.tasks.kinds._classes import Classes, Normalisation
from fastweights.tasks.kinds.episodes import Episodes
from fastweights.tasks.sources.archives import members
from fastweights.tasks.sources.image_sets import FileVersion, ImageSet, read_images, version_of
from fastweights.tasks.sources.splits import Split, read_tables

FOLDER = "miniImagenet/"
SPLIT = (64, 16, 20)


@dataclass(frozen=True)
class MiniImagenet(Episodes):
    """Few-shot classification of photographs from ImageNet (mini-ImageNet).

    Input -> target: Photographs with labels -> the label of another photograph of one of the classes.

    The split is that of Ravi and Larochelle 2017, from the tables in the archive: 64 classes for training, 16 for
    validation, 20 for the test.

    Files: `mini-imagenet/miniImagenet.zip`, with `miniImagenet/images/*.jpg` and `miniImagenet/{train,val,test}.csv` (a
    line `filename,label` per image); if it is missing, `mini-imagenet/miniImagenet-first100.zip` with the first 100
    images of each class of 600. ImageNet's terms: for research and education, not for profit.

    Args:
        side: Height and width of the images in pixels, scaled by area from 84.

    Source: Vinyals et al. 2016; Ravi and Larochelle 2017; Irie et al. 2022, Sec. 4.1.
    """

    side: int = 84

    NORMALISATION: ClassVar[Normalisation] = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    """Normalisation of the authors' sequential experiment."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.side <= 84, "side", "from 1 to 84", self.side)

    @property
    def shape(self) -> tuple[int, int]:
        return 3, self.side

    def classes(self, split: int) -> tuple[Classes, ...]:
        image_set, parts = self._all
        return (Classes(image_set, parts[split], 1),)

    @cached_property
    def _all(self) -> tuple[ImageSet, Split]:
        return mini_imagenet(self.side)


def mini_imagenet(side: int) -> tuple[ImageSet, Split]:
    """All photographs as squares, and the classes of each split; read once per process."""
    return _read(version_of(ARCHIVE.fetch()), side)


@lru_cache(maxsize=2)
def _read(archive: FileVersion, side: int) -> tuple[ImageSet, Split]:
    contents = {name.removeprefix(FOLDER): content for name, content in members(archive.path, _is_image_or_table)}
    files, split = read_tables(contents, "images/")
    sizes = tuple(map(len, split))
    require(sizes == SPLIT, str(archive.path), f"an archive with {SPLIT} classes", sizes)
    return read_images(files, 3, side), tuple(map(np.array, split))  # type: ignore[return-value]


def _is_image_or_table(name: str) -> bool:
    return name.startswith(FOLDER) and name.endswith((".csv", ".jpg"))
