"""Omniglot: characters of fifty alphabets, each drawn by twenty people."""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from fastweights.core.errors import require
from fastweights.tasks.data_sets.omniglot import BACKGROUND, EVALUATION
from fastweights.tasks.kinds._classes import QUARTER_TURNS, Classes, Normalisation
from fastweights.tasks.kinds.episodes import Episodes
from fastweights.tasks.sources.archives import members
from fastweights.tasks.sources.image_sets import FileVersion, ImageSet, in_order, read_images, version_of

NAME = re.compile(r"images_(?:background|evaluation)/([^/]+/character\d+)/[^/]+\.png$")
CHARACTERS = 1623

VALIDATION_ALPHABETS = ("Armenian", "Bengali", "Early_Aramaic", "Hebrew", "Mkhedruli_(Georgian)")
TEST_ALPHABETS = (
    *("Kannada", "Keble", "Malayalam", "Manipuri", "Mongolian", "Old_Church_Slavonic_(Cyrillic)", "Oriya", "Sylheti"),
    *("Syriac_(Serto)", "Tengwar", "Tibetan", "ULOG"),
)
TEST_CHARACTERS = tuple(f"Gurmukhi/character{n}" for n in range(42, 46))
"""Test characters of the alphabet that the split divides; its first 41 characters are for training."""


@dataclass(frozen=True)
class Omniglot(Episodes):
    """Few-shot classification of handwritten characters (Omniglot).

    Input -> target: Characters with labels -> the label of another drawing of one of them.

    Images are scaled to squares by area, with white paper and black ink. The split is that of Vinyals et al. 2016 as in
    torchmeta: 1,028 characters for training, 172 of other alphabets for validation, and 423 for the test, of further
    alphabets except for 4 of Gurmukhi. The authors' code scales with pillow's bilinear filter.

    Files: `omniglot/images_background.zip` and `omniglot/images_evaluation.zip` of B. Lake's repository (MIT),
    downloaded if missing: 32,460 drawings of 105 x 105 pixels.

    Args:
        rotations: Whether characters rotated by 90, 180 and 270 degrees are additional classes, in every split.
        side: Height and width of the images in pixels.

    Source: Lake, Salakhutdinov and Tenenbaum 2015; Irie et al. 2022, Sec. 4.1 and Appendix B.
    """

    rotations: bool = True
    side: int = 28

    NORMALISATION: ClassVar[Normalisation] = Normalisation((0.922,) * 3, (0.084,) * 3)
    """Normalisation of the authors' sequential experiment, in which characters have three channels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.side <= 105, "side", "from 1 to 105", self.side)

    @property
    def shape(self) -> tuple[int, int]:
        return 1, self.side

    def classes(self, split: int) -> tuple[Classes, ...]:
        return (Classes(self.image_set, self._split[split], QUARTER_TURNS if self.rotations else 1),)

    @cached_property
    def image_set(self) -> ImageSet:
        """All images, decoded."""
        return omniglot(self.side)

    @cached_property
    def _split(self) -> tuple[np.ndarray, ...]:
        return split_by_alphabet(self.image_set.names)


def split_by_alphabet(names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices of the characters for training, validation and the test."""
    parts = [_part(name) for name in names]
    return tuple(np.flatnonzero([part == n for part in parts]) for n in range(3))  # type: ignore[return-value]


def omniglot(side: int) -> ImageSet:
    """All drawings as squares, read once per process."""
    return _read(tuple(version_of(archive.fetch()) for archive in (BACKGROUND, EVALUATION)), side)


@lru_cache(maxsize=2)
def _read(archives: tuple[FileVersion, ...], side: int) -> ImageSet:
    files: dict[str, list[tuple[str, bytes]]] = {}
    for archive in archives:
        for name, content in members(archive.path, NAME.search):
            files.setdefault(_class_of(name), []).append((name, content))
    require(len(files) == CHARACTERS, "omniglot", f"a data set with {CHARACTERS:,} characters", f"{len(files):,}")
    return read_images(in_order(files), 1, side)


def _class_of(name: str) -> str:
    match = NAME.search(name)
    assert match is not None
    return match[1]


def _part(name: str) -> int:
    alphabet = name.partition("/")[0]
    if alphabet in TEST_ALPHABETS or name in TEST_CHARACTERS:
        return 2
    return int(alphabet in VALIDATION_ALPHABETS)
