"""Tasks: data and metric. A task knows no model; each is one file here, and `_task` says what they have in common.

Files with a leading underscore are no tasks of their own: what tasks share, and text for language modelling.
"""

from fastweights.tasks._files import MissingFile
from fastweights.tasks._task import IGNORE, Batch, Mean, Metrics, Task, combine
from fastweights.tasks.associative_recall import AssociativeRecall
from fastweights.tasks.associative_retrieval import AssociativeRetrieval
from fastweights.tasks.code_execution import CodeExecution
from fastweights.tasks.face_glimpses import FaceGlimpses
from fastweights.tasks.list_ops import ListOps
from fastweights.tasks.mnist_glimpses import MnistGlimpses
from fastweights.tasks.retrieval import Retrieval
from fastweights.tasks.state_tracking import StateTracking

__all__ = [
    "IGNORE",
    "AssociativeRecall",
    "AssociativeRetrieval",
    "Batch",
    "CodeExecution",
    "FaceGlimpses",
    "ListOps",
    "Mean",
    "Metrics",
    "MissingFile",
    "MnistGlimpses",
    "Retrieval",
    "StateTracking",
    "Task",
    "combine",
]
