"""Copying: a sequence of symbols, to be repeated in order."""

from dataclasses import dataclass

import numpy as np
import torch

from fastweights.core.errors import require
from fastweights.tasks.kinds.labelled import Batch, FreshTask


@dataclass(frozen=True)
class Copying(FreshTask):
    """Copying: repeat a sequence of symbols.

    Input -> target: `x_1 ... x_n`, then n steps of token 0 -> `x_1 ... x_n` there.

    Symbols are drawn uniformly from 1 to N. All of them are needed, and each is asked for only by its position.

    Args:
        symbols: N.
        copied: n.
        evaluation_size: Sequences in the validation set and in the test set.
        data_seed: Seed of both sets.

    Source: Graves et al. 2014 (Neural Turing Machines), Sec. 4.1, with symbols in place of vectors of bits.
    """

    symbols: int = 16
    copied: int = 32
    evaluation_size: int = 1000
    data_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.symbols >= 2, "symbols", "at least 2", self.symbols)
        require(self.copied >= 1, "copied", "at least 1", self.copied)

    @property
    def input_size(self) -> int:
        return self.symbols + 1

    @property
    def output_size(self) -> int:
        return self.symbols + 1

    @property
    def majority_class(self) -> int:
        """Any symbol, since all are equally likely."""
        return 1

    @property
    def chance(self) -> dict[str, float]:
        return {"loss": self._uniform_loss, "accuracy": 1 / self.symbols}

    def _draw(self, random: np.random.Generator, n: int) -> Batch:
        symbols = random.integers(1, self.symbols + 1, (n, self.copied))
        inputs = np.hstack([symbols, np.zeros_like(symbols)])
        return Batch(torch.from_numpy(inputs), torch.from_numpy(symbols))
