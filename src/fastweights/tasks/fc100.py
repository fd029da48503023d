"""FC100: CIFAR-100 split by groups, so that test classes differ from all training classes."""

from dataclasses import dataclass

import numpy as np

from fastweights.tasks.data_sets.cifar_100 import ARCHIVE
from fastweights.tasks.kinds._classes import Classes
from fastweights.tasks.kinds.episodes import Episodes
from fastweights.tasks.sources.cifar_100 import SIDE, cifar_100

VALIDATION = ("large_carnivores", "large_omnivores_and_herbivores", "non-insect_invertebrates", "small_mammals")
TEST = ("aquatic_mammals", "insects", "medium_mammals", "people")


@dataclass(frozen=True)
class FC100(Episodes):
    """Few-shot classification of small photographs from CIFAR-100 (FC100).

    Input -> target: Photographs with labels -> the label of another photograph of one of the classes.

    The 100 classes of CIFAR-100 are in 20 groups of 5. The classes of 12 groups are for training, of 4 for validation
    and of 4 for the test: 60, 20 and 20 classes of 600 images.

    Files: `cifar-100/cifar-100-binary.tar.gz` of A. Krizhevsky (the binary version of CIFAR-100, since the Python
    version would have to be unpickled).

    Source: Oreshkin et al. 2018; Irie et al. 2022, Sec. 4.1.
    """

    @property
    def shape(self) -> tuple[int, int]:
        return 3, SIDE

    def classes(self, split: int) -> tuple[Classes, ...]:
        image_set = cifar_100(ARCHIVE.fetch())
        parts = [_part(name.partition("/")[0]) for name in image_set.names]
        return (Classes(image_set, np.flatnonzero([part == split for part in parts]), 1),)


def _part(group: str) -> int:
    return 1 if group in VALIDATION else 2 if group in TEST else 0
