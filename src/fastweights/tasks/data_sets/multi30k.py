"""Multi30k, task 1: image captions in English and German (Elliott et al. 2016)."""

from fastweights.tasks.sources.data_files import DataFile
from fastweights.tasks.sources.data_set import DataSet

MIRROR = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
SIZES = {
    "train.en": (568_929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    "train.de": (637_044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
    "val.en": (21_650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    "val.de": (24_681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    "test_2016_flickr.en": (21_077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
    "test_2016_flickr.de": (22_890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
}
FILES = {name: DataFile(f"multi30k/{name}.gz", *facts, (f"{MIRROR}{name}.gz",)) for name, facts in SIZES.items()}

DATA_SET = DataSet(
    licence="for research",
    size="1.3 MB",
    page="https://github.com/multi30k/dataset",
    files=tuple(FILES.values()),
)
