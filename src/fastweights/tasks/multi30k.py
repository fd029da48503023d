"""Image captions in English and German."""

from dataclasses import dataclass

from fastweights.tasks.data_sets.multi30k import FILES
from fastweights.tasks.sources.data_files import gunzip
from fastweights.tasks.sources.parallel_text import Parallel

PARTS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
LANGUAGES = {"source": "en", "target": "de"}


@dataclass(frozen=True)
class Multi30k(Parallel):
    """Translation of image captions from English to German (Multi30k).

    Input -> target: A caption in English -> the same caption in German.

    Files: `multi30k/train.en.gz` and five others of task 1 (the captions of Flickr30k, translated; for research),
    downloaded if missing: 29,000 pairs for training, 1,014 for validation, and the 1,000 of 2016 for the test.

    Source: Elliott, Frank, Sima'an and Specia 2016.
    """

    def read(self, part: str, language: str) -> bytes:
        name = f"{PARTS[part]}.{LANGUAGES[language]}"
        return gunzip(FILES[name].read(), FILES[name].path)
