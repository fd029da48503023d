"""MNIST as sequences of 24 small glimpses."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fastweights.tasks.data_sets.mnist import TEST_IMAGES, TEST_LABELS, TRAINING_IMAGES, TRAINING_LABELS
from fastweights.tasks.kinds.labelled import Batch, Sets
from fastweights.tasks.sources.data_files import DataFile
from fastweights.tasks.sources.glimpses import GlimpseTask, cut_glimpses
from fastweights.tasks.sources.images import read_idx

VALIDATION_SIZE = 10_000


@dataclass(frozen=True)
class MNISTGlimpses(GlimpseTask):
    """Classification of MNIST digits from glimpses.

    Input -> target: 24 glimpses of 7 x 7 pixels -> digit, 0 to 9.

    A 28 x 28 image is cut into four quadrants; each is shown at half resolution, then its four quarters in full, then
    at half resolution again (our reading of "24"). The last 10,000 training images are the validation set, which is our
    choice; the test set is MNIST's.

    Files: `mnist/train-images-idx3-ubyte.gz` and the three others of MNIST (Y. LeCun and C. Cortes, CC BY-SA 3.0),
    downloaded if missing: 50,000 images for training, 10,000 for validation and 10,000 for the test.

    Source: Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 4.2.
    """

    patch: ClassVar[int] = 7

    @property
    def output_size(self) -> int:
        return 10

    @property
    def majority_class(self) -> int:
        return 1

    @property
    def chance(self) -> dict[str, float]:
        """Scores of the constant answer 1, of which the test set has 1,135."""
        return {"loss": self._uniform_loss, "accuracy": 0.1135}

    def _make_sets(self) -> Sets:
        images, labels = self._read(TRAINING_IMAGES, TRAINING_LABELS)
        cut = len(labels) - VALIDATION_SIZE
        test = self._read(TEST_IMAGES, TEST_LABELS)
        return Sets(Batch(images[:cut], labels[:cut]), Batch(images[cut:], labels[cut:]), test)

    def _read(self, images: DataFile, labels: DataFile) -> Batch:
        return Batch(cut_glimpses(_read(images, 3), self.patch), _read(labels, 1).unsqueeze(1))


def _read(file: DataFile, axes: int) -> Tensor:
    return torch.from_numpy(read_idx(file.read(), file.path, axes).copy())
