"""Tiny Shakespeare: a million characters of plays of Shakespeare (Karpathy 2015)."""

from fastweights.tasks.sources.data_files import DataFile
from fastweights.tasks.sources.data_set import DataSet

TEXT = DataFile(
    "tiny-shakespeare/input.txt",
    1_115_394,
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",),
)

DATA_SET = DataSet(
    licence="public domain",
    size="1.1 MB",
    page="https://github.com/karpathy/char-rnn",
    files=(TEXT,),
)
