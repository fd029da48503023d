"""In-context regression: a linear function that is different in every sequence."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastweights.core.errors import require
from fastweights.tasks.kinds.labelled import IGNORE, Batch, FreshTask, Kind, Mean


@dataclass(frozen=True)
class InContextRegression(FreshTask):
    """In-context regression: learn a linear map from examples in the sequence.

    Input -> target: `(x_1, 0), (x_2, y_1), ..., (x_T, y_(T-1))` -> the range of y_t at every t after the first D, with
    y = w . x + noise.

    Every sequence has its own w. x is drawn from N(0, I), and w so that y has variance 1. The classes are B ranges of y
    that are about equally likely. Ridge regression on the pairs so far is the best linear estimate.

    Args:
        dimension: D, the number of features of x.
        length: T.
        ranges: B.
        noise: Standard deviation of the noise.
        evaluation_size: Sequences in the validation set and in the test set.
        data_seed: Seed of both sets.

    Source: Garg et al. 2022 (What Can Transformers Learn In-Context?), with classes in place of numbers.
    """

    dimension: int = 8
    length: int = 32
    ranges: int = 8
    noise: float = 0.1
    evaluation_size: int = 1000
    data_seed: int = 0

    input_kind: ClassVar[Kind] = "features"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.dimension >= 1, "dimension", "at least 1", self.dimension)
        require(self.length > self.dimension, "length", f"above dimension={self.dimension}", self.length)
        require(self.ranges >= 2, "ranges", "at least 2", self.ranges)
        require(0 <= self.noise < 1, "noise", "from 0 to below 1", self.noise)

    @property
    def input_size(self) -> int:
        return self.dimension + 1

    @property
    def output_size(self) -> int:
        return self.ranges

    @property
    def chance(self) -> dict[str, float]:
        return {"loss": self._uniform_loss, "accuracy": 1 / self.ranges}

    def baselines(self) -> dict[str, float]:
        """Ridge regression on all pairs so far, which knows the noise."""
        test = self._test
        x, y = test.inputs[..., :-1].double(), test.inputs[:, 1:, -1].double()
        guesses = torch.stack([self._range(ridge(x, y, t, self.noise)) for t in range(self.dimension, self.length)], 1)
        scored = test.targets[:, self.dimension :]
        right = (guesses == scored).sum()
        return {"ridge regression": Mean(float(right), scored.numel()).value}

    def _draw(self, random: np.random.Generator, n: int) -> Batch:
        x = random.standard_normal((n, self.length, self.dimension))
        w = random.standard_normal((n, 1, self.dimension)) * ((1 - self.noise**2) / self.dimension) ** 0.5
        y = (x * w).sum(axis=-1) + self.noise * random.standard_normal((n, self.length))
        before: NDArray[np.float64] = np.hstack([np.zeros((n, 1)), y[:, :-1]])
        inputs = np.concatenate([x, before[..., None]], axis=2).astype(np.float32)
        targets = self._range(torch.from_numpy(y))
        targets[:, : self.dimension] = IGNORE
        return Batch(torch.from_numpy(inputs), targets)

    def _range(self, y: Tensor) -> Tensor:
        """The class of a number: which of the ranges it is in."""
        bounds = [NormalDist().inv_cdf(n / self.ranges) for n in range(1, self.ranges)]
        return torch.bucketize(y, torch.tensor(bounds, dtype=y.dtype))


def ridge(x: Tensor, y: Tensor, t: int, noise: float) -> Tensor:
    """Predictions for x_t `[n]` from the pairs before it: the mean of w given the data, for w of the task."""
    known, dimension = x[:, :t], x.shape[-1]
    penalty = dimension * max(noise, 1e-4) ** 2 / (1 - noise**2)
    gram = known.mT @ known + penalty * torch.eye(dimension, dtype=x.dtype)
    w = torch.linalg.solve(gram, known.mT @ y[:, :t, None])
    return (x[:, t, None] @ w)[:, 0, 0]
