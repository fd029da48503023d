"""Key-value retrieval: the capacity of a memory, and its ability to update associations."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastweights.core.errors import require, require_name
from fastweights.core.metric import LOSS, Metric
from fastweights.tasks.kinds.labelled import IGNORE, Batch, FreshTask, Kind

Setting = Literal["capacity", "updates"]
EvaluationLength = Literal["published", "implied"]


@dataclass(frozen=True)
class Retrieval(FreshTask):
    """Associative retrieval with real-valued outputs: pairs, then a key as the query.

    Input -> target: `(k_1, v_1), ..., (k_L, v_L), q` -> the last `v_i` with `k_i = q`.

    A step is a pair of tokens: a key of 0 to S - 1 with a value of 0 to S - 1 to write, or a key with S, the code for
    no value, as a query. Queries come last; a training sequence has one, for the key at a uniformly drawn position.
    The loss is 1/2 |one_hot(v) - output|^2, averaged over the queries.
    Evaluation queries every key of a sequence, in one sequence of L + S steps; queries for keys that did not occur are
    not scored. A query must not change the memory; `separate` is for models that write at every step. The loss is
    the mean over all questions (the authors' code takes the mean of means of minibatches, of at most 200 questions a
    sequence, which estimates the same).

    Args:
        symbols: S, the number of keys and of values.
        setting: "capacity" (setting 1): L = S, keys and values are permutations. "updates" (setting 2): L = 2 S, both
            drawn with replacement.
        evaluation_length: L of evaluation sequences in "updates": "published" is S, which the authors' code uses and
            the published numbers come from; "implied" is 2 S, as the paper's text reads. The same in "capacity".
        evaluation_size: Sequences in the validation set and in the test set.
        data_seed: Seed of both sets.

    Source: Schlag, Irie and Schmidhuber 2021, Sec. 6.1.
    """

    symbols: int = 20
    setting: Setting = "capacity"
    evaluation_length: EvaluationLength = "published"
    evaluation_size: int = 20
    data_seed: int = 0

    input_kind: ClassVar[Kind] = "pairs"
    main_metric: ClassVar[Metric] = LOSS

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.symbols >= 2, "symbols", "at least 2", self.symbols)
        require_name("setting", self.setting, get_args(Setting))
        require_name("evaluation_length", self.evaluation_length, get_args(EvaluationLength))

    @property
    def input_size(self) -> int:
        """S: keys are below it, and values are at most S."""
        return self.symbols

    @property
    def output_size(self) -> int:
        return self.symbols

    @property
    def length(self) -> int:
        """L in training."""
        return self.symbols if self.setting == "capacity" else 2 * self.symbols

    @property
    def chance(self) -> dict[str, float]:
        """Scores of the output 0."""
        return {"loss": 0.5, "accuracy": 1 / self.symbols}

    def perfect_outputs(self, targets: Tensor) -> Tensor:
        return self._one_hot(targets)

    def baseline_outputs(self, targets: Tensor) -> Tensor:
        return torch.zeros(*targets.shape, self.output_size, device=targets.device)

    def _total_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self._require_shape(outputs, targets)
        error = (outputs - self._one_hot(targets)).square().sum(-1)
        return 0.5 * error[targets != IGNORE].sum()

    def _draw(self, random: np.random.Generator, n: int) -> Batch:
        keys, values = self._pairs(random, n, self.length)
        queries = np.take_along_axis(keys, random.integers(0, self.length, (n, 1)), axis=1)
        last = self.length - 1 - (keys == queries)[:, ::-1].argmax(axis=1, keepdims=True)
        return self._batch(keys, values, queries, np.take_along_axis(values, last, axis=1))

    def _draw_for_evaluation(self, random: np.random.Generator, n: int) -> Batch:
        keys, values = self._pairs(random, n, self.symbols if self.evaluation_length == "published" else self.length)
        queries = np.tile(np.arange(self.symbols), (n, 1))
        return self._batch(keys, values, queries, self._last_values(keys, values))

    def _pairs(self, random: np.random.Generator, n: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self.setting == "updates":
            keys, values = random.integers(0, self.symbols, (2, n, length))
        else:
            keys, values = random.permuted(np.broadcast_to(np.arange(length), (2, n, length)), axis=2)
        return keys, values

    def _last_values(self, keys: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The last value of each key, `[n, S]`."""
        table = np.full((len(keys), self.symbols), IGNORE)
        rows = np.arange(len(keys))
        for key, value in zip(keys.T, values.T, strict=True):
            table[rows, key] = value
        return table

    def _batch(self, keys: NDArray[np.int64], values: NDArray[np.int64], queries: NDArray[np.int64],
               targets: NDArray[np.int64]) -> Batch:  # fmt: skip
        asking = np.full_like(queries, self.symbols)
        steps = np.stack([np.hstack([keys, queries]), np.hstack([values, asking])], axis=-1)
        return Batch(torch.from_numpy(steps), torch.from_numpy(targets))


def separate(batch: Batch) -> Batch:
    """Splits a sequence with Q queries into Q sequences with one: `[B, L + Q, 2]` becomes `[queries, L + 1, 2]`."""
    sequence, question = (batch.targets != IGNORE).nonzero(as_tuple=True)
    length = batch.inputs.shape[1] - batch.targets.shape[1]
    queries = batch.inputs[sequence, length + question].unsqueeze(1)
    inputs = torch.cat([batch.inputs[sequence, :length], queries], dim=1)
    return Batch(inputs, batch.targets[sequence, question].unsqueeze(1))
