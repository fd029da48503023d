"""Tasks: data and metrics, one task per file, independent of any model. `kinds` defines the interfaces of tasks."""

from fastweights.tasks.associative_recall import AssociativeRecall
from fastweights.tasks.associative_retrieval import AssociativeRetrieval
from fastweights.tasks.atari import Atari
from fastweights.tasks.catch import Catch
from fastweights.tasks.cifar_fs import CIFARFS
from fastweights.tasks.code_execution import CodeExecution
from fastweights.tasks.copying import Copying
from fastweights.tasks.face_glimpses import FaceGlimpses
from fastweights.tasks.fc100 import FC100
from fastweights.tasks.gymnasium_environment import GymnasiumEnvironment
from fastweights.tasks.image_folder import ImageFolder
from fastweights.tasks.in_context_regression import InContextRegression
from fastweights.tasks.kinds.labelled import IGNORE, Batch, Labelled, Mean, Metrics, combine
from fastweights.tasks.kinds.stream import Stream
from fastweights.tasks.kinds.task import Task
from fastweights.tasks.letters import Letters
from fastweights.tasks.list_ops import ListOps
from fastweights.tasks.mini_imagenet import MiniImagenet
from fastweights.tasks.mnist_glimpses import MNISTGlimpses
from fastweights.tasks.multi30k import Multi30k
from fastweights.tasks.omniglot import Omniglot
from fastweights.tasks.parallel_files import ParallelFiles
from fastweights.tasks.procgen import Procgen
from fastweights.tasks.retrieval import Retrieval
from fastweights.tasks.selective_forgetting import SelectiveForgetting
from fastweights.tasks.sequence_files import SequenceFiles
from fastweights.tasks.sequential_adaptation import SequentialAdaptation
from fastweights.tasks.sources.data_files import MissingFile
from fastweights.tasks.state_tracking import StateTracking
from fastweights.tasks.t_maze import TMaze
from fastweights.tasks.text import Text
from fastweights.tasks.text_files import TextFiles
from fastweights.tasks.wikitext_2 import Wikitext2
from fastweights.tasks.wikitext_103 import Wikitext103
from fastweights.tasks.wmt14 import WMT14

__all__ = [
    "CIFARFS",
    "FC100",
    "IGNORE",
    "WMT14",
    "AssociativeRecall",
    "AssociativeRetrieval",
    "Atari",
    "Batch",
    "Catch",
    "CodeExecution",
    "Copying",
    "FaceGlimpses",
    "GymnasiumEnvironment",
    "ImageFolder",
    "InContextRegression",
    "Labelled",
    "Letters",
    "ListOps",
    "MNISTGlimpses",
    "Mean",
    "Metrics",
    "MiniImagenet",
    "MissingFile",
    "Multi30k",
    "Omniglot",
    "ParallelFiles",
    "Procgen",
    "Retrieval",
    "SelectiveForgetting",
    "SequenceFiles",
    "SequentialAdaptation",
    "StateTracking",
    "Stream",
    "TMaze",
    "Task",
    "Text",
    "TextFiles",
    "Wikitext2",
    "Wikitext103",
    "combine",
]
