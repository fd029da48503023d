"""WikiText-103: a hundred million words of Wikipedia (Merity et al. 2017)."""

from fastweights.tasks.sources.data_files import ManualFile
from fastweights.tasks.sources.data_set import DataSet, FileOrArchive

ARCHIVE = ManualFile(
    "wikitext-103/wikitext-103-v1.zip",
    "Download https://wikitext.smerity.com/wikitext-103-v1.zip (190 MB). Its files may also be unpacked, as "
    "wikitext-103/wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens.",
)
FILES = {
    part: FileOrArchive(f"wikitext-103/wiki.{part}.tokens", ARCHIVE.path, ARCHIVE)
    for part in ("train", "valid", "test")
}

DATA_SET = DataSet(
    licence="CC BY-SA 3.0",
    size="190 MB",
    page="https://wikitext.smerity.com",
    files=tuple(FILES.values()),
)
