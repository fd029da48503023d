"""Sequential ListOps: nested lists, evaluated as they are read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from fastweights.core.errors import InputError, require
from fastweights.core.files import decoded, read_file
from fastweights.tasks.kinds._random import TRAINING, random_stream
from fastweights.tasks.kinds.labelled import IGNORE, Batch, FixedTask, Sets, require_sizes, split_sets
from fastweights.tasks.sources.data_files import gunzip
from fastweights.tokenizers._tokenizer import lines

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

VOCABULARY = (*"0123456789", "[MAX", "[MIN", "[FIRST", "]")
"""The words, of which token n is word n. Padding at the end is token 0 and not scored."""

MAX, MIN, FIRST, CLOSE = range(10, 14)
NESTED = 0.25
"""Probability that an argument is a list."""

ARGUMENTS = np.arange(2, 6)
"""Numbers of arguments of a list, all with the same probability."""

OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MAX": max,
    "[MIN": min,
    "[FIRST": lambda values: values[0],
    "[MED": lambda values: int(median(values)),
    "[SM": lambda values: sum(values) % 10,
}
"""Operations of `evaluate`: those of the task and the other two of the original ListOps. A median between two digits is
their mean, rounded down."""


@dataclass(frozen=True)
class ListOps(FixedTask):
    """ListOps: evaluate nested lists of operations on digits.

    Input -> target: `[MAX 6 1 [FIRST 2 3] 0 [MIN 4 7 1]]` -> `6`, at the last `]`.

    A list has an operator of MAX, MIN and FIRST, and 2 to 5 arguments; an argument is a list with probability 1/4,
    otherwise a digit; all other choices are uniform. The depth is the maximum nesting, 2 above. The published data were
    drawn by rejection until the depth was right (one in 67 has depth 10, one in 160 depth 15). Here that conditional
    distribution is sampled directly: see `_Lists`. As there, a list may occur twice, which happens at depths 1 and 2,
    of which there are few.

    Args:
        depth: 10 and 15 are published.
        sizes: Sequences for training, validation and test.
        data_seed: Seed of the sequences.

    Source: Irie, Schlag, Csordas and Schmidhuber 2021, Sec. 4.3 and App. B.4, after Nangia and Bowman 2018.
    """

    depth: int = 10
    sizes: tuple[int, int, int] = (10_000, 1_000, 1_000)
    data_seed: int = 0

    def __post_init__(self) -> None:
        require(1 <= self.depth <= 19, "depth", "from 1 to 19, the limit of the published generator", self.depth)
        require_sizes(self.sizes)
        require(self.data_seed >= 0, "data_seed", "at least 0", self.data_seed)

    @property
    def input_size(self) -> int:
        return len(VOCABULARY)

    @property
    def output_size(self) -> int:
        return 10

    @property
    def majority_class(self) -> int:
        return int(self.distribution.argmax())

    @property
    def chance(self) -> dict[str, float]:
        return {"loss": self._uniform_loss, "accuracy": float(self.distribution.max())}

    @cached_property
    def distribution(self) -> Floats:
        """Exact probability of each of the ten answers.

        With a the (unnormalised) distribution of an argument of height at most h, a list of height at most h + 1 has
        the cumulative distribution A^m for the maximum of m arguments, and so on. Those of at most `depth` less those
        of less are those of `depth`.
        """
        digits = np.full(10, (1 - NESTED) / 10)
        argument, lists = np.zeros(10), np.zeros(10)
        for _ in range(self.depth + 1):
            before, lists = lists, _values_of_lists(argument)
            argument = digits + NESTED * lists
        exact = lists - before
        return exact / exact.sum()

    def _make_sets(self) -> Sets:
        lists = _Lists.begin(random_stream(self.data_seed, TRAINING), sum(self.sizes), self.depth)
        while not lists.done:
            lists.write()
        return split_sets(lists.packed(), self.sizes)


def _values_of_lists(argument: Floats) -> Floats:
    """Distribution of the value of a list with arguments from `argument`, `[10]` each, unnormalised."""
    lists = np.zeros(10)
    below, above = np.cumsum(argument), np.cumsum(argument[::-1])
    for m in ARGUMENTS:
        lists += (
            np.diff(below**m, prepend=0) + np.diff(above**m, prepend=0)[::-1] + argument * argument.sum() ** (m - 1)
        )
    return lists / (3 * len(ARGUMENTS))


@dataclass
class _Lists:
    """Lists that are written and evaluated in lockstep, one token at a time, each with a stack of open lists.

    The height of a digit is 0 and that of a list one more than its highest argument; G(h) is the probability that an
    argument has a height of at most h. An open list bounds the height of its arguments by b, and either needs one of
    height b exactly among its r next ones (then its number m of arguments has a probability proportional to
    G(b)^m - G(b - 1)^m), or does not (then G(b)^m). An argument takes that need upon itself with probability
    (G(b) - G(b - 1)) G(b)^(r - 1) / (G(b)^r - G(b - 1)^r); if it does not, its own bound is b - 1. Without a need it
    is a digit with probability 3/4 / G(b).
    """

    random: np.random.Generator
    up_to: Floats  # G(-1), G(0), ...
    top: Ints  # [n] index of the innermost open list, -1 before the first and after the last
    operator: Ints  # [n, depth], as the four that follow: of every open list
    value: Ints  # of its arguments so far
    left: Ints  # number of remaining arguments
    bound: Ints  # of their heights
    need: Ints  # 1 if one of them must reach it
    written: list[NDArray[np.uint8]]  # [n] each: a column of tokens, CLOSE after the end
    lengths: Ints  # [n]

    @staticmethod
    def begin(random: np.random.Generator, n: int, depth: int) -> "_Lists":
        operator, value, left, bound, need = np.zeros((5, n, depth), np.int64)
        empty, lengths = np.full(n, -1), np.zeros(n, np.int64)
        lists = _Lists(random, _heights(depth), empty, operator, value, left, bound, need, [], lengths)
        all_rows = np.arange(n)
        column = np.zeros(n, np.uint8)
        lists._open(all_rows, column, np.full(n, depth), np.ones(n, np.int64))
        lists._emit(all_rows, column)
        return lists

    @property
    def done(self) -> bool:
        return bool((self.top < 0).all())

    def write(self) -> None:
        """Adds one token to every unfinished list."""
        column = np.full(len(self.top), CLOSE, np.uint8)
        rows = np.flatnonzero(self.top >= 0)
        full = self.left[rows, self.top[rows]] == 0
        self._close(rows[full])
        self._argue(rows[~full], column)
        self._emit(rows, column)

    def packed(self) -> Batch:
        """Returns the lists, padded at the end, with their values at their last tokens."""
        tokens = np.stack(self.written, axis=1)
        tokens[np.arange(tokens.shape[1]) >= self.lengths[:, None]] = 0
        targets = np.full(tokens.shape, IGNORE, np.int8)
        targets[np.arange(len(tokens)), self.lengths - 1] = self.value[:, 0]
        return Batch(torch.from_numpy(tokens), torch.from_numpy(targets))

    def _emit(self, rows: Ints, column: NDArray[np.uint8]) -> None:
        self.written.append(column)
        self.lengths[rows] += 1

    def _argue(self, rows: Ints, column: NDArray[np.uint8]) -> None:
        """Writes the next argument of the innermost lists: a digit or a new list."""
        height, exact = self._take_need(rows)
        digit = self.random.random(len(rows)) < np.where(exact, height == 0, (1 - NESTED) / self.up_to[height + 1])
        digits = self.random.integers(0, 10, len(rows))
        column[rows[digit]] = digits[digit]
        self._combine(rows[digit], self.top[rows[digit]], digits[digit])
        self._open(rows[~digit], column, height[~digit], exact[~digit].astype(np.int64))

    def _take_need(self, rows: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Bound of the height of the next argument, and whether it must reach it."""
        at = rows, self.top[rows]
        bound, left, need = self.bound[at], self.left[at], self.need[at] == 1
        high, low = self.up_to[bound + 1], self.up_to[bound]
        takes = need & (self.random.random(len(rows)) < (high - low) * high ** (left - 1) / (high**left - low**left))
        self.left[at] -= 1
        self.need[at] = need & ~takes
        return np.where(need & ~takes, bound - 1, bound), takes

    def _open(self, rows: Ints, column: NDArray[np.uint8], height: Ints, exact: Ints) -> None:
        """Begins a list of the given height, or of at most that."""
        operators = self.random.integers(MAX, CLOSE, len(rows))
        weights = self.up_to[height, None] ** ARGUMENTS - exact[:, None] * self.up_to[height - 1, None] ** ARGUMENTS
        shares = weights.cumsum(axis=1) / weights.sum(axis=1, keepdims=True)
        several = ARGUMENTS[(self.random.random((len(rows), 1)) > shares[:, :-1]).sum(axis=1)]
        self.top[rows] += 1
        at = rows, self.top[rows]
        self.operator[at], self.left[at], self.bound[at], self.need[at] = operators, several, height - 1, exact
        self.value[at] = -1
        column[rows] = operators

    def _close(self, rows: Ints) -> None:
        """Ends the innermost lists, and passes their values to the enclosing lists."""
        values = self.value[rows, self.top[rows]]
        self.top[rows] -= 1
        inner = self.top[rows] >= 0
        self._combine(rows[inner], self.top[rows[inner]], values[inner])

    def _combine(self, rows: Ints, top: Ints, values: Ints) -> None:
        """Updates the value of an open list by an argument; -1 is the value of a list without arguments."""
        old, operator = self.value[rows, top], self.operator[rows, top]
        new = np.select([operator == MAX, operator == MIN], [np.maximum(old, values), np.minimum(old, values)], old)
        self.value[rows, top] = np.where(old < 0, values, new)


def _heights(depth: int) -> Floats:
    """G(-1), G(0), ..., G(depth): the probability that an argument has at most that height."""
    up_to = [0.0, 1 - NESTED]
    for _ in range(depth):
        up_to.append(1 - NESTED + NESTED * float(np.mean(up_to[-1] ** ARGUMENTS)))
    return np.array(up_to)


def evaluate(words: list[str]) -> int:
    """Evaluates a list from its words. Parentheses, which some files have, are ignored.

    >>> evaluate("[MAX 6 1 [FIRST 2 3 ] 0 [MIN 4 7 1 ] ]".split())
    6
    """
    words = [word for word in words if word not in "()"]
    open_lists: list[tuple[str, list[int]]] = [("[FIRST", [])]
    for word in words:
        if word in OPERATIONS:
            open_lists.append((word, []))
        elif word == "]":
            operator, arguments = open_lists.pop()
            if not (arguments and open_lists):
                raise _not_a_list(words)
            open_lists[-1][1].append(OPERATIONS[operator](arguments))
        elif len(word) == 1 and word in "0123456789":
            open_lists[-1][1].append(int(word))
        else:
            raise _not_a_list(words)
    if len(open_lists) != 1 or len(open_lists[0][1]) != 1:
        raise _not_a_list(words)
    return open_lists[0][1][0]


def _not_a_list(words: list[str]) -> InputError:
    known = " ".join(OPERATIONS)
    shown = repr(" ".join(words[:30])[:60])
    return InputError(f"list must be one whole list of digits and of {known} with arguments and ], got {shown}.")


def read_examples(path: Path | str) -> Iterator[tuple[int, list[str]]]:
    """Reads labels and words from a file with a line `label<TAB>words` for each list, plain or gzipped.

    `InputError` if it cannot be read or a line is invalid.
    """
    for number, line in enumerate(lines(_text(Path(path))), start=1):
        label, tab, words = line.partition("\t")
        good = bool(tab) and len(label) == 1 and label in "0123456789" and bool(words.split())
        require(good, f"line {number} of {path}", "a digit, a tab and words", repr(line[:60]))
        yield int(label), words.split()


def _text(path: Path) -> str:
    content = read_file(path, "list file")
    content = gunzip(content, str(path)) if content[:2] == b"\x1f\x8b" else content
    return decoded(content, "list file", path)
