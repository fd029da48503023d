"""Base class of all tasks."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from fastweights.core.arguments import check_fields, fields_checked
from fastweights.core.docstrings import inherit
from fastweights.core.metric import Metric


class Task(ABC):
    """Base class of tasks: data and metric of an experiment, independent of any model.

    A task is a frozen dataclass whose fields are its options.
    """

    main_metric: ClassVar[Metric]
    """The metric that the paper reports, and by which models are selected on the validation set."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Adds checks of the types of its options to every task, and completes its docstrings."""
        super().__init_subclass__(**kwargs)
        inherit(cls)
        if "__post_init__" in vars(cls):
            cls.__post_init__ = fields_checked(cls.__post_init__)  # type: ignore[method-assign, assignment]

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def kind(cls) -> str:
        """Name of the kind of the task: the file in `tasks/kinds` that defines its interface.

        Returns:
            The name.
        """
        homes = (base.__module__.rpartition(".") for base in cls.__mro__)
        return next(name for package, _, name in homes if package == __package__)

    @property
    @abstractmethod
    def arguments(self) -> tuple[Any, ...]:
        """The first arguments of a model for the task."""

    @property
    def summary_line(self) -> str:
        """Size of the data in one line, for the start of a run; empty if the data are fixed."""
        return ""

    def facts(self) -> dict[str, Any]:
        """Facts of the data for the run folder, in addition to the options.

        Returns:
            The facts by name, as JSON values.
        """
        return {}

    def restored_from(self, facts: Mapping[str, Any]) -> "Task":
        """Restores the task from the facts of a run folder, without its files, to use a trained model.

        Args:
            facts: Facts that `facts()` returned.

        Returns:
            The task.
        """
        return self
