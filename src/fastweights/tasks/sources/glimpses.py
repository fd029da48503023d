"""An image as 24 glimpses in a fixed order."""

from typing import ClassVar

import torch
from torch import Tensor

from fastweights.tasks.kinds.labelled import Batch, FixedTask, Kind

PER_QUADRANT = 6


class GlimpseTask(FixedTask):
    """Classification of square images as glimpses `[B, 24, patch * patch]` from 0 to 1.

    Quadrants and the details in them have the order upper left, upper right, lower left, lower right. The glimpses of a
    quadrant are coarse, four details, and coarse again. That is our reading of the 24 of the paper, since 4 x (1 + 4)
    is 20.
    """

    input_kind: ClassVar[Kind] = "features"
    patch: ClassVar[int]
    """Side of a glimpse in pixels; an image has four times that."""

    @property
    def input_size(self) -> int:
        return self.patch**2

    def images(self, inputs: Tensor) -> Tensor:
        """Reassembles the images `[B, side, side]` from the details of their glimpses."""
        details = inputs.view(-1, 2, 2, PER_QUADRANT, self.patch, self.patch)[:, :, :, 1:5]
        grid = details.unflatten(3, (2, 2)).permute(0, 1, 3, 5, 2, 4, 6)
        return grid.flatten(4, 6).flatten(1, 3)

    def _finish(self, batch: Batch) -> Batch:
        # The division comes last: quarters are integers, so that glimpses are the same on every platform.
        return Batch(batch.inputs.float().div_(4 * 255), batch.targets.long())


def cut_glimpses(images: Tensor, patch: int) -> Tensor:
    """Cuts images of bytes `[B, 4 patch, 4 patch]` into int16 `[B, 24, patch * patch]`, in quarter grey levels.

    A task stores its images as glimpses, since cutting every batch takes a tenth of the time of a training step.
    """
    images = images.short()
    halves = images.unflatten(2, (2, 2, patch)).unflatten(1, (2, 2, patch))
    details = 4 * halves.permute(0, 1, 4, 2, 5, 3, 6).reshape(-1, 4, 4, patch**2)
    rows = images[:, ::2] + images[:, 1::2]
    sums = rows[:, :, ::2] + rows[:, :, 1::2]
    coarse = sums.unflatten(2, (2, patch)).unflatten(1, (2, patch)).transpose(2, 3).reshape(-1, 4, 1, patch**2)
    return torch.cat([coarse, details, coarse], dim=2).flatten(1, 2)
