"""WMT14: 4.5 million sentence pairs in English and German (Bojar et al. 2014)."""

from fastweights.tasks.sources.data_files import ManualFile
from fastweights.tasks.sources.data_set import DataSet

INSTRUCTIONS = (
    "Download the corpora from https://www.statmt.org/wmt14/translation-task.html. Write one sentence per line, in "
    "UTF-8, with or without tokenisation by Moses, to train, valid and test, each as .en.gz and .de.gz."
)
FILES = {
    name: ManualFile(f"wmt14-en-de/{name}.gz", INSTRUCTIONS)
    for name in ("train.en", "train.de", "valid.en", "valid.de", "test.en", "test.de")
}

DATA_SET = DataSet(
    licence="for research",
    size="1.6 GB",
    page="https://www.statmt.org/wmt14/translation-task.html",
    files=tuple(FILES.values()),
)
