"""Omniglot: 32,460 drawings of 1,623 characters of 50 alphabets (Lake et al. 2015)."""

from fastweights.tasks.sources.data_archive import DataArchive
from fastweights.tasks.sources.data_set import DataSet

URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
MEMBERS = r"images_(background|evaluation)/[^/]+/character\d+/[^/]+\.png$"
LIMIT = 20_000_000

BACKGROUND = DataArchive(
    "omniglot/images_background.zip",
    LIMIT,
    MEMBERS,
    "2a97a1b7cf1ce8a0652808ad5386ee4187fd5a695c02f7288868389720bd77f0",
    (f"{URL}images_background.zip",),
)
EVALUATION = DataArchive(
    "omniglot/images_evaluation.zip",
    LIMIT,
    MEMBERS,
    "d55490151ba24ee407f3a72f4045f0a5b3d11d92ed1a4e21c539938d283c757a",
    (f"{URL}images_evaluation.zip",),
)

DATA_SET = DataSet(
    licence="MIT",
    size="16 MB",
    page="https://github.com/brendenlake/omniglot",
    files=(BACKGROUND, EVALUATION),
)
