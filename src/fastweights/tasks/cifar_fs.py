"""CIFAR-FS: CIFAR-100 split by classes."""

from dataclasses import dataclass

import numpy as np

from fastweights.tasks.data_sets.cifar_100 import ARCHIVE
from fastweights.tasks.kinds._classes import Classes
from fastweights.tasks.kinds.episodes import Episodes
from fastweights.tasks.sources.cifar_100 import SIDE, cifar_100

VALIDATION = (
    *("aquatic_mammals/beaver", "aquatic_mammals/otter", "fish/flatfish", "fish/shark"),
    *("household_electrical_devices/lamp", "household_electrical_devices/television", "insects/beetle"),
    *("insects/butterfly", "large_natural_outdoor_scenes/sea", "large_omnivores_and_herbivores/camel"),
    *("large_omnivores_and_herbivores/cattle", "non-insect_invertebrates/crab", "reptiles/crocodile"),
    *("trees/maple_tree", "vehicles_1/motorcycle", "vehicles_2/tractor"),
)
TEST = (
    *("aquatic_mammals/whale", "flowers/poppy", "flowers/rose", "fruit_and_vegetables/sweet_pepper"),
    *("household_electrical_devices/telephone", "household_furniture/bed", "household_furniture/table"),
    *("household_furniture/wardrobe", "large_carnivores/leopard", "large_natural_outdoor_scenes/plain"),
    *("large_omnivores_and_herbivores/chimpanzee", "medium_mammals/fox", "non-insect_invertebrates/snail"),
    *("non-insect_invertebrates/worm", "people/baby", "people/man", "people/woman", "vehicles_1/bicycle"),
    *("vehicles_1/pickup_truck", "vehicles_2/rocket"),
)


@dataclass(frozen=True)
class CIFARFS(Episodes):
    """Few-shot classification of small photographs from CIFAR-100 (CIFAR-FS).

    Input -> target: Photographs with labels -> the label of another photograph of one of the classes.

    Of the 100 classes of CIFAR-100, 64 are for training, 16 for validation and 20 for the test, with 600 images each.

    Files: `cifar-100/cifar-100-binary.tar.gz` of A. Krizhevsky (the binary version of CIFAR-100, since the Python
    version would have to be unpickled).

    Source: Bertinetto et al. 2019; next to FC100 in the data sets of the code of Irie et al. 2022.
    """

    @property
    def shape(self) -> tuple[int, int]:
        return 3, SIDE

    def classes(self, split: int) -> tuple[Classes, ...]:
        image_set = cifar_100(ARCHIVE.fetch())
        parts = [_part(name) for name in image_set.names]
        return (Classes(image_set, np.flatnonzero([part == split for part in parts]), 1),)


def _part(name: str) -> int:
    return 1 if name in VALIDATION else 2 if name in TEST else 0
