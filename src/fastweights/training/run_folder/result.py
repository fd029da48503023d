"""What a run came to, as it stands in its folder."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fastweights.core.errors import require
from fastweights.core.metric import Metric
from fastweights.core.sealed_json import read_sealed, write_sealed

MOST = 1 << 53
"""Of what is counted: a float can still tell it from its neighbours."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run came to.

    Args:
        step: The update whose weights were kept. All metrics are of these weights.
        steps: Updates until training ended.
        stopped: What ended it: "steps", "patience", "goal" or "diverged"; empty if nothing has yet.
        seconds: Of training, those before an interruption and those of evaluations included.
        parameters: Of the model.
        validation: Metrics on validation data, by name.
        test: The same on test data.
        baselines: What others than models come to on test data, in the task's main metric, by name.
        state: Numbers that are carried for one sequence, of a model that can carry a state.
    """

    step: int
    steps: int
    stopped: str
    seconds: float
    parameters: int
    validation: dict[str, float]
    test: dict[str, float]
    baselines: dict[str, float] = field(default_factory=dict)
    state: int = 0

    def value(self, metric: Metric) -> float:
        """The number that stands in a table; `KeyError` if it was not measured."""
        return metric.value({"validation": self.validation, "test": self.test}[metric.data][metric.name])

    @property
    def measured(self) -> dict[str, float]:
        """Metrics on test data by name, and on validation data by `validation_` and the name."""
        return {**{f"validation_{name}": value for name, value in self.validation.items()}, **self.test}

    def __post_init__(self) -> None:
        for name in ("step", "steps", "parameters", "state"):
            value = getattr(self, name)
            require(type(value) is int and 0 <= value < MOST, name, "a whole number of at least 0", repr(value)[:80])
        seconds = type(self.seconds) is float and 0 <= self.seconds < math.inf
        require(seconds, "seconds", "a number of at least 0", repr(self.seconds)[:80])
        require(isinstance(self.stopped, str), "stopped", "a word", repr(self.stopped)[:80])
        for name in ("validation", "test", "baselines"):
            numbers = getattr(self, name)
            known = isinstance(numbers, dict) and all(type(number) is float for number in numbers.values())
            require(known, name, "numbers by name", repr(numbers)[:80])


def write(path: Path, result: Result, beside: Mapping[str, Any]) -> None:
    """Writes a result, and facts beside it that `read` gives back, sealed."""
    write_sealed(path, {**asdict(result), **beside})


def read(path: Path) -> tuple[Result, dict[str, Any]]:
    """The result in a file, and the facts beside it; `InputError` if it is not as it was written."""
    content = read_sealed(path)
    names = {known.name for known in fields(Result)}
    missing = sorted(names - content.keys() - {"baselines", "state"})
    require(not missing, path.name, f"with {', '.join(missing)}", f"{path} without", "Delete it: it is made again.")
    result = Result(**{name: value for name, value in content.items() if name in names})
    return result, {name: value for name, value in content.items() if name not in names}
