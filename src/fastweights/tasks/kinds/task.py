"""What all kinds of tasks have in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from fastweights.core.arguments import check_fields, fields_checked
from fastweights.core.metric import Metric


class Task(ABC):
    """Data and metric of an experiment; knows no model. A task is a frozen dataclass whose fields are its options."""

    main_metric: ClassVar[Metric]
    """What the paper reports, and what to choose models by on the validation set."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Makes every task check the types of its options."""
        super().__init_subclass__(**kwargs)
        if "__post_init__" in vars(cls):
            cls.__post_init__ = fields_checked(cls.__post_init__)  # type: ignore[method-assign, assignment]

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def kind(cls) -> str:
        """The file in `tasks/kinds` that says what it gives."""
        homes = (base.__module__.rpartition(".") for base in cls.__mro__)
        return next(name for package, _, name in homes if package == __package__)

    @property
    @abstractmethod
    def arguments(self) -> tuple[Any, ...]:
        """What a model for it is made from, before options of its own."""

    @property
    def described(self) -> str:
        """The size of the data in a line that a run begins with; empty where the data are the same for everybody."""
        return ""

    def facts(self) -> dict[str, Any]:
        """What a run folder has to know of the data, beside the options."""
        return {}

    def known_by(self, facts: Mapping[str, Any]) -> "Task":
        """The task as facts in a run folder tell of it, where its files need not be there: to use a model with."""
        return self
