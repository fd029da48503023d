"""Image captions in English and German."""

from dataclasses import dataclass

from fastweights.tasks.sources.data_files import DataFile, gunzip
from fastweights.tasks.sources.parallel_text import Parallel

MIRROR = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
PARTS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
LANGUAGES = {"source": "en", "target": "de"}
FILES = {
    "train.en": (568_929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    "train.de": (637_044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
    "val.en": (21_650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    "val.de": (24_681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    "test_2016_flickr.en": (21_077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
    "test_2016_flickr.de": (22_890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
}


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
        file = DataFile(f"multi30k/{name}.gz", *FILES[name], (f"{MIRROR}{name}.gz",))
        return gunzip(file.read(), file.path)
