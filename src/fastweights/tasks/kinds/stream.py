"""Streams: a long sequence that is read in windows, with a state that is carried from each to the next."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.metric import BITS, Metric
from fastweights.tasks.kinds.task import Task


class Stream(Task):
    """A sequence of tokens, of which each is to be predicted from those before it: three parts, one after the other."""

    main_metric: ClassVar[Metric] = BITS
    unit: ClassVar[str] = "token"
    """What a token is."""

    @property
    @abstractmethod
    def training(self) -> Tensor:
        """int64 `[tokens]`."""

    @property
    @abstractmethod
    def validation(self) -> Tensor:
        """For choosing when to stop and which weights to keep; follows the training part."""

    @property
    @abstractmethod
    def test(self) -> Tensor:
        """For the report; follows the validation part."""

    @property
    def unseen(self) -> Mapping[str, Tensor]:
        """Other sequences for the report, of which nothing is learned, by name."""
        return {}

    def baselines(self) -> dict[str, float]:
        """Bits a token on the test part, of what is no model of ours, by name."""
        return {}

    def windows(self, batch_size: int, window: int) -> "Windows":
        """The training part as parallel streams."""
        return Windows(self.training, batch_size, window)


@dataclass(frozen=True)
class Windows:
    """A sequence as parallel streams read window by window, so that a state can be carried from each to the next.

    >>> import torch
    >>> windows = Windows(torch.arange(11), batch_size=2, window=2)
    >>> len(windows), windows[1]
    (2, (tensor([[2, 3], [7, 8]]), tensor([[3, 4], [8, 9]])))
    """

    tokens: Tensor
    batch_size: int
    window: int

    def __post_init__(self) -> None:
        for name in ("batch_size", "window"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        needed = self.batch_size * self.window + 1
        remedy = "Take a longer text, a smaller batch_size or a smaller window."
        require(len(self.tokens) >= needed, "text", f"of at least {needed} training tokens", len(self.tokens), remedy)

    def __len__(self) -> int:
        """Windows a pass; what does not fill a window at the end is left out."""
        return self._length // self.window

    def __getitem__(self, window: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets, `[batch_size, window]` each."""
        start = window * self.window
        inputs, targets = self.tokens[:-1], self.tokens[1:]
        return tuple(  # type: ignore[return-value]
            part[: self.batch_size * self._length].view(self.batch_size, -1)[:, start : start + self.window]
            for part in (inputs, targets)
        )

    @property
    def _length(self) -> int:
        return (len(self.tokens) - 1) // self.batch_size
