"""Streams: a long sequence that is read in windows, with a state carried from window to window."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.metric import BITS, Metric
from fastweights.tasks.kinds.task import Task


class Stream(Task):
    """Base class of tasks with one long sequence of tokens for next-token prediction, in three consecutive parts."""

    main_metric: ClassVar[Metric] = BITS
    unit: ClassVar[str] = "token"
    """Name of the unit of a token."""

    @property
    @abstractmethod
    def training(self) -> Tensor:
        """The training part, int64 `[tokens]`."""

    @property
    @abstractmethod
    def validation(self) -> Tensor:
        """The validation part, which follows the training part, for early stopping."""

    @property
    @abstractmethod
    def test(self) -> Tensor:
        """The test part, which follows the validation part."""

    @property
    def unseen(self) -> Mapping[str, Tensor]:
        """Other test sequences by name, which are not used in training."""
        return {}

    def baselines(self) -> dict[str, float]:
        """Scores of methods other than networks on the test part.

        Returns:
            Bits per token, by name.
        """
        return {}

    def windows(self, batch_size: int, window: int) -> "Windows":
        """Splits the training part into parallel streams, which are read window by window.

        Args:
            batch_size: Number of streams B.
            window: Number of tokens per window.

        Returns:
            The windows: inputs and targets `[B, window]` by index.
        """
        return Windows(self.training, batch_size, window)


@dataclass(frozen=True)
class Windows:
    """A sequence as parallel streams that are read window by window, so that a state can be carried over.

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
        minimum = self.batch_size * self.window + 1
        remedy = "Use a longer text, a smaller batch_size or a smaller window."
        require(
            len(self.tokens) >= minimum, "text", f"at least {minimum} training tokens long", len(self.tokens), remedy
        )

    def __len__(self) -> int:
        """Number of windows per pass. An incomplete window at the end is dropped."""
        return self._length // self.window

    def __getitem__(self, window: int) -> tuple[Tensor, Tensor]:
        """Returns inputs and targets, `[batch_size, window]` each."""
        start = window * self.window
        inputs, targets = self.tokens[:-1], self.tokens[1:]
        return tuple(  # type: ignore[return-value]
            part[: self.batch_size * self._length].view(self.batch_size, -1)[:, start : start + self.window]
            for part in (inputs, targets)
        )

    @property
    def _length(self) -> int:
        return (len(self.tokens) - 1) // self.batch_size
