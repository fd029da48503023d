"""bAbI: stories of 20 question answering tasks (Weston et al. 2015)."""

from fastweights.tasks.sources.data_archive import DataArchive
from fastweights.tasks.sources.data_set import DataSet

STORIES = DataArchive(
    "babi/tasks_1-20_v1-2.tar.gz",
    30_000_000,
    r"/en/qa\d+_.*_test\.txt$",
    "7a636b1f43a7127f924b2fea4472a4bbc07799d3de735a6bf66f35c696a704e8",
    (
        "https://s3.amazonaws.com/text-datasets/babi_tasks_1-20_v1-2.tar.gz",
        "http://www.thespermwhale.com/jaseweston/babi/tasks_1-20_v1-2.tar.gz",
    ),
    ("babi/tasks_1-20_v1-2-en.tar.gz",),
)

DATA_SET = DataSet(
    licence="CC BY 3.0",
    size="12 MB",
    page="https://research.facebook.com/downloads/babi/",
    files=(STORIES,),
)
