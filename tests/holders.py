"""Things that cells hold beside tensors, for tests of whether a kernel notices that they change."""

from typing import NamedTuple

from torch import Tensor


class Holder:
    """What a user's class may hold."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def times(self, x: Tensor) -> Tensor:
        return x * self.scale


class Scaled(NamedTuple):
    """A NamedTuple with more than fields."""

    scale: float

    @property
    def twice(self) -> float:
        return self._half * 4

    @property
    def _half(self) -> float:
        return self.scale / 2
