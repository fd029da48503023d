"""Parallel text files of the user."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from fastweights.core.errors import require
from fastweights.core.files import read_file
from fastweights.tasks.kinds._random import ORDER, random_stream
from fastweights.tasks.sources.data_files import MissingFile
from fastweights.tasks.sources.parallel_text import Lines, Parallel, lines_of

PARTS = ("train", "validation", "test")
SHARE, MOST = 20, 1000
"""One pair in `SHARE` is for validation and one for the test, at most `MOST` each."""
LONGEST_LINE = 10_000
"""Characters of the longest sentence that is used: longer lines are documents."""

Sides = tuple[Lines, Lines]


@dataclass(frozen=True)
class ParallelFiles(Parallel):
    """Translation between two text files of the user.

    Input -> target: A sentence -> its translation, the same line of the other file.

    Pairs that repeat another pair, that are empty on one side, or longer than 10,000 characters are left out.
    Validation and test pairs are drawn at random from the two files, unless they have files of their own.

    Files: two UTF-8 text files with a sentence per line, `source` and `target`, of equally many lines.

    Args:
        source: Source sentences.
        target: Target sentences.
        validation_source: Source sentences for validation; empty for a random part of the pairs.
        validation_target: Their translations.
        test_source: Source sentences for the test; empty for a random part of the pairs.
        test_target: Their translations.
        sentences: Number of pairs for training; 0 for all.
        held_out: Number of pairs that are drawn for validation, and number for the test; 0 for a twentieth, at most
            1000.
        longest: Pairs with more pieces on either side are left out.
        data_seed: Seed of the draw.

    Source: the format of Koehn 2005 (Europarl).
    """

    source: str = ""
    target: str = ""
    validation_source: str = ""
    validation_target: str = ""
    test_source: str = ""
    test_target: str = ""
    data_seed: int = 0

    limited: ClassVar[frozenset[str]] = frozenset(PARTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.data_seed >= 0, "data_seed", "at least 0", self.data_seed)

    def read(self, part: str, language: str) -> bytes:
        path = self._path(part, language)
        if not path:
            raise MissingFile(f"{language} must be a text file, got none. Say {language}=FILE.")
        return read_file(Path(path), language)

    @property
    def summary_line(self) -> str:
        sizes = [len(pairs.sources) for pairs in (self.training, self.validation, self.test)]
        counted = "{:,} sentence pairs for training, {:,} for validation, {:,} for the test".format(*sizes)
        left_out = sum(map(len, self._files.values())) - sum(sizes)
        why = f"empty, repeated, of more than {LONGEST_LINE:,} characters or of more than {self.longest} pieces"
        return f"{counted}{f'; {left_out:,} are left out: {why}' if left_out else ''}"

    def _lines(self, part: str) -> Sides:
        return self._split[part]

    @cached_property
    def _files(self) -> dict[str, list[tuple[str, str]]]:
        """The pairs of the parts that have files."""
        parts = [part for part in PARTS if part == "train" or self._path(part, "source")]
        return {part: self._pairs_of(part) for part in parts}

    @cached_property
    def _split(self) -> Mapping[str, Sides]:
        """The usable pairs of each part, without repetitions."""
        pairs_of = {part: dict.fromkeys(filter(_is_usable, pairs)) for part, pairs in self._files.items()}
        drawn = [part for part in PARTS[1:] if part not in pairs_of]
        held_out = {pair for part in PARTS[1:] for pair in pairs_of.get(part, ())}
        pairs = [pair for pair in pairs_of["train"] if pair not in held_out]
        number = self.held_out or min(max(len(pairs) // SHARE, 1), MOST)
        minimum = number * len(drawn) + 1
        require(len(pairs) >= minimum, "source and target", f"files with at least {minimum} usable pairs", len(pairs))
        order = random_stream(self.data_seed, ORDER).permutation(len(pairs)).tolist()
        for index, part in enumerate(drawn):
            pairs_of[part] = dict.fromkeys(pairs[n] for n in sorted(order[index * number : (index + 1) * number]))
        training = [pairs[n] for n in sorted(order[len(drawn) * number :])]
        pairs_of["train"] = dict.fromkeys(training[: self.sentences or None])
        return {part: _sides(list(pairs_of[part]), part) for part in PARTS}

    def _pairs_of(self, part: str) -> list[tuple[str, str]]:
        names = [language if part == "train" else f"{part}_{language}" for language in ("source", "target")]
        source, target = (
            lines_of(self.read(part, language), name)
            for language, name in zip(("source", "target"), names, strict=True)
        )
        equal = f"{len(source):,} in {self._path(part, 'source')} and {len(target):,} in {self._path(part, 'target')}"
        require(len(source) == len(target), f"{names[0]} and {names[1]}", "files with equal numbers of lines", equal)
        return list(zip(source, target, strict=True))

    def _path(self, part: str, language: str) -> str:
        path: str = getattr(self, language if part == "train" else f"{part}_{language}")
        return path


def _is_usable(pair: tuple[str, str]) -> bool:
    return all(0 < len(line) <= LONGEST_LINE for line in pair)


def _sides(pairs: list[tuple[str, str]], part: str) -> Sides:
    require(bool(pairs), f"{part} part", "at least one usable pair", "none")
    source, target = zip(*pairs, strict=True)
    return source, target
