"""CMU Face Images: 640 photographs of 20 people (Mitchell 1997)."""

from fastweights.tasks.sources.data_files import ManualFile
from fastweights.tasks.sources.data_set import DataSet

ARCHIVE = ManualFile(
    "cmu-faces/faces.tar.gz",
    "Download faces.tar.gz from the UCI repository, https://archive.ics.uci.edu/dataset/124/cmu+face+images.",
)

DATA_SET = DataSet(
    licence="free for educational purposes, with attribution",
    size="11 MB",
    page="https://archive.ics.uci.edu/dataset/124/cmu+face+images",
    files=(ARCHIVE,),
)
