"""A translator of the user's own parallel files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fastweights.core.errors import require
from fastweights.core.metric import Display
from fastweights.experiments.experiment import Trial, own_data
from fastweights.recipes._translator import SMALLEST, TranslatorRecipe
from fastweights.training.settings._training import LARGEST_SEED, require_numbers

FILES = ("source", "target", "validation_source", "validation_target", "test_source", "test_target")


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe(TranslatorRecipe):
    """A translator of your sentences, from two parallel text files with one sentence per line.

    Data: yours: --source FILE --target FILE.

    Args:
        source: UTF-8 text file with one sentence per line.
        target: UTF-8 text file with the translations of the same lines.
        validation_source: Source file for validation; null for random sentence pairs from the two files.
        validation_target: Target file for validation.
        test_source: Source file for the test; null for random sentence pairs from the two files.
        test_target: Target file for the test.
        held_out: Number of random sentence pairs for validation, and for the test; 0 for 5 % of all pairs, at most
            1000.
        data_seed: Random seed of the choice of these pairs.
    """

    source: Path | None = None
    target: Path | None = None
    validation_source: Path | None = None
    validation_target: Path | None = None
    test_source: Path | None = None
    test_target: Path | None = None
    held_out: int = 0
    data_seed: int = 0

    DATA: ClassVar[tuple[str, ...]] = (
        "source",
        "target",
        "validation_source",
        "validation_target",
        "test_source",
        "test_target",
        "pieces",
        "held_out",
        "data_seed",
    )
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"cpu": {}, "smoke": {**SMALLEST}}
    USE: ClassVar[str] = 'translate RUN "A sentence."'

    def __post_init__(self) -> None:
        super().__post_init__()
        for side in ("source", "target"):
            require(getattr(self, side) is not None, side, "a text file", "none", f"Add --{side} FILE.")
        for part in ("validation", "test"):
            both = (getattr(self, f"{part}_source"), getattr(self, f"{part}_target"))
            remedy = f"Add --{part}-source FILE --{part}-target FILE, or leave out both."
            require(both.count(None) != 1, f"{part}_source and {part}_target", "given together", "one of them", remedy)
        require_numbers(self, ("held_out",), 0)
        require_numbers(self, ("data_seed",), 0, LARGEST_SEED)

    def trial(self) -> Trial:
        """The trial of these flags."""
        files = {name: str(path) for name in FILES if (path := getattr(self, name)) is not None}
        task = {**files, **{name: getattr(self, name) for name in ("pieces", "held_out", "data_seed")}}
        return Trial("parallel-files", task, "translator", self.model_options(), self.training())


TABLE = own_data("Translation of your sentences", Display("test BLEU"))
