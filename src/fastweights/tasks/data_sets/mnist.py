"""MNIST: 70,000 images of handwritten digits (LeCun and Cortes)."""

from fastweights.tasks.sources.data_files import DataFile
from fastweights.tasks.sources.data_set import DataSet

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


def _file(name: str, size: int, sha256: str) -> DataFile:
    return DataFile(f"mnist/{name}", size, sha256, tuple(mirror + name for mirror in MIRRORS))


TRAINING_IMAGES = _file(
    "train-images-idx3-ubyte.gz", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
)
TRAINING_LABELS = _file(
    "train-labels-idx1-ubyte.gz", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
)
TEST_IMAGES = _file(
    "t10k-images-idx3-ubyte.gz", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
)
TEST_LABELS = _file(
    "t10k-labels-idx1-ubyte.gz", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
)

DATA_SET = DataSet(
    licence="CC BY-SA 3.0",
    size="12 MB",
    page="https://yann.lecun.com/exdb/mnist/",
    files=(TRAINING_IMAGES, TRAINING_LABELS, TEST_IMAGES, TEST_LABELS),
)
