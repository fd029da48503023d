"""Tasks: data and metric. A task knows no model; each is one file here, and `_task` says what they have in common.

Files with a leading underscore are no tasks of their own: what tasks share, and text for language modelling.
"""

from fastweights.tasks._files import MissingFile
from fastweights.tasks._task import IGNORE, Batch, Mean, Metrics, Task, combine

__all__ = ["IGNORE", "Batch", "Mean", "Metrics", "MissingFile", "Task", "combine"]
