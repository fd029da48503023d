"""CIFAR-100: 60,000 small photographs of 100 classes (Krizhevsky 2009)."""

from fastweights.tasks.sources.data_files import ManualFile
from fastweights.tasks.sources.data_set import DataSet

ARCHIVE = ManualFile(
    "cifar-100/cifar-100-binary.tar.gz",
    "Download the binary version, https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz (161 MB, published MD5 "
    "03b5dce01913d631647c71ecec9e9cb8).",
)

DATA_SET = DataSet(
    licence="no licence stated",
    size="161 MB",
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
    files=(ARCHIVE,),
)
