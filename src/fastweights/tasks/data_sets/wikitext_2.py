"""WikiText-2: two million words of Wikipedia (Merity et al. 2017)."""

from fastweights.tasks.sources.data_files import DataFile
from fastweights.tasks.sources.data_set import DataSet, FileOrArchive

MIRROR = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/"

FACTS = {
    "train": (10_797_148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
    "valid": (1_121_681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
    "test": (1_256_449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
}


def _file(part: str) -> FileOrArchive:
    path = f"wikitext-2/wiki.{part}.tokens"
    return FileOrArchive(path, "wikitext-2/wikitext-2-v1.zip", DataFile(path, *FACTS[part], (f"{MIRROR}{part}.txt",)))


FILES = {part: _file(part) for part in FACTS}

DATA_SET = DataSet(
    licence="CC BY-SA 3.0",
    size="13 MB",
    page="https://wikitext.smerity.com",
    files=tuple(FILES.values()),
)
