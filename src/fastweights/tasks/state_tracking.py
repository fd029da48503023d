"""State tracking: parity, and products in larger groups."""

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from fastweights.core.errors import require, require_name
from fastweights.tasks.kinds.labelled import Batch, FreshTask

Group = Literal["parity", "s3", "a5", "s5"]


@dataclass(frozen=True)
class StateTracking(FreshTask):
    """State tracking: products of the elements of a group.

    Input -> target: `x_1, x_2, ..., x_t -> y_t = x_1 x_2 ... x_t`.

    Elements are drawn uniformly. The product is the target at every time step. In "parity" the elements are bits, and
    the product is whether the number of ones is odd. In "s3" and "s5" they are all permutations of 3 or 5 objects, in
    "a5" the even permutations of 5 objects, numbered in lexicographic order; x y applies x first. Parity needs a
    state that can change its sign. The word problems of "a5" and "s5" are complete for NC^1, that of "s3" is not.

    Args:
        group: "parity", "s3", "s5" or "a5".
        length: T in training.
        evaluation_length: T of the validation set and of the test set; 0 for `length`.
        evaluation_size: Sequences in the validation set and in the test set.
        data_seed: Seed of both sets.

    Source: Merrill, Petty and Sabharwal 2024 (word problems of groups); the sizes are our choice.
    """

    group: Group = "parity"
    length: int = 64
    evaluation_length: int = 0
    evaluation_size: int = 1000
    data_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_name("group", self.group, get_args(Group))
        require(self.length >= 1, "length", "at least 1", self.length)
        require(self.evaluation_length >= 0, "evaluation_length", "at least 0", self.evaluation_length)

    @property
    def input_size(self) -> int:
        return len(self._product)

    @property
    def output_size(self) -> int:
        return len(self._product)

    @property
    def chance(self) -> dict[str, float]:
        return {"loss": self._uniform_loss, "accuracy": 1 / self.output_size}

    @cached_property
    def _product(self) -> NDArray[np.int64]:
        """`[n, n]`: the number of the product of two elements."""
        elements = self._elements()
        number = {element: n for n, element in enumerate(elements)}
        return np.array([[number[tuple(y[i] for i in x)] for y in elements] for x in elements])

    def _elements(self) -> list[tuple[int, ...]]:
        things = {"parity": 2, "s3": 3, "a5": 5, "s5": 5}[self.group]
        return [p for p in permutations(range(things)) if self.group != "a5" or _is_even(p)]

    def _draw(self, random: np.random.Generator, n: int) -> Batch:
        return self._sequences(random, n, self.length)

    def _draw_for_evaluation(self, random: np.random.Generator, n: int) -> Batch:
        return self._sequences(random, n, self.evaluation_length or self.length)

    def _sequences(self, random: np.random.Generator, n: int, length: int) -> Batch:
        inputs = random.integers(0, self.input_size, (n, length))
        targets = inputs.copy()
        for t in range(1, length):
            targets[:, t] = self._product[targets[:, t - 1], inputs[:, t]]
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))


def _is_even(p: tuple[int, ...]) -> bool:
    return sum(p[i] > p[j] for j in range(len(p)) for i in range(j)) % 2 == 0
