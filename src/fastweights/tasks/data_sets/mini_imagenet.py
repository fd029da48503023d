"""Mini-ImageNet: 60,000 photographs of 100 classes (Vinyals et al. 2016, Ravi and Larochelle 2017)."""

from fastweights.tasks.sources.data_files import ManualFile
from fastweights.tasks.sources.data_set import DataSet

ARCHIVE = ManualFile(
    "mini-imagenet/miniImagenet.zip",
    "Get the images from ImageNet, https://image-net.org/download, and the split from "
    "https://github.com/twitter-research/meta-learning-lstm/tree/master/data/miniImagenet. The archive has a folder "
    "miniImagenet with images/*.jpg, train.csv, val.csv and test.csv.",
    ("mini-imagenet/miniImagenet-first100.zip",),
)

DATA_SET = DataSet(
    licence="ImageNet terms: research and education, not commercial",
    size="3 GB",
    page="https://image-net.org",
    files=(ARCHIVE,),
)
