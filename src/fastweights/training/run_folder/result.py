"""The result of a run, in its run folder."""

import hashlib
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fastweights.core.errors import require
from fastweights.core.files import read_file
from fastweights.core.measurements import Detail, Key, OnValidation
from fastweights.core.metric import Metric
from fastweights.core.sealed_json import REMEDY, read_sealed, write_sealed

RESULT, METRICS = "result.json", "metrics.jsonl"
MOST = 1 << 53
"""Upper limit of counts: larger integers are not exact as floats."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a run.

    Args:
        step: Training step of the saved weights. All metrics are of these weights.
        steps: Training steps until the end of training.
        stopped: Reason for the end: "steps", "patience", "goal" or "diverged"; empty if training has not ended.
        seconds: Seconds of training, including those before an interruption and those of evaluations.
        parameters: Number of parameters of the model.
        validation: Metrics on validation data, by name.
        test: Metrics on test data, by name.
        curves: Curves over test data, by name: pairs (x, y), such as a time step and the main metric there.
        details: Numbers about parts of the test data, by group and member, in the units of the main metric.
        baselines: The task's main metric on test data of other methods, by name.
        state: Number of values in the state for one sequence; 0 for a model without a state.
        step_seconds: Seconds per time step of one sequence at inference; 0 if it was not measured.
    """

    step: int
    steps: int
    stopped: str
    seconds: float
    parameters: int
    validation: dict[str, float]
    test: dict[str, float]
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    details: dict[str, dict[str, float]] = field(default_factory=dict)
    baselines: dict[str, float] = field(default_factory=dict)
    state: int = 0
    step_seconds: float = 0.0

    def value(self, metric: Metric) -> float:
        """The number of a table; `KeyError` if it was not measured."""
        return metric.value({"validation": self.validation, "test": self.test}[metric.display.data][metric.name])

    def numbers(self) -> dict[Any, float]:
        """Metrics on test data by name, and then all details by `Detail`."""
        parts = {Detail(group, name): value for group, own in self.details.items() for name, value in own.items()}
        return {**self.test, **parts}

    @property
    def measured(self) -> dict[Key, float]:
        """Metrics on validation data by `OnValidation`, metrics on test data by name, and all details by `Detail`."""
        return {**{OnValidation(name): value for name, value in self.validation.items()}, **self.numbers()}

    def __post_init__(self) -> None:
        for name in ("step", "steps", "parameters", "state"):
            value = getattr(self, name)
            require(type(value) is int and 0 <= value < MOST, name, "a whole number of at least 0", repr(value)[:80])
        for name in ("seconds", "step_seconds"):
            value = getattr(self, name)
            holds = type(value) is float and 0 <= value < math.inf
            require(holds, name, "a number of at least 0", repr(value)[:80])
        require(isinstance(self.stopped, str), "stopped", "a word", repr(self.stopped)[:80])
        for name in ("validation", "test", "baselines"):
            require(_are_numbers(getattr(self, name)), name, "numbers by name", repr(getattr(self, name))[:80])
        grouped = isinstance(self.details, dict) and all(map(_are_numbers, self.details.values()))
        require(grouped, "details", "numbers by group and member", repr(self.details)[:80])
        drawn = isinstance(self.curves, dict) and all(map(_are_points, self.curves.values()))
        require(drawn, "curves", "pairs of numbers by name", repr(self.curves)[:80])
        # JSON has lists for pairs.
        object.__setattr__(self, "curves", {name: [(x, y) for x, y in curve] for name, curve in self.curves.items()})


def _are_numbers(numbers: Any) -> bool:
    return isinstance(numbers, dict) and all(type(number) is float for number in numbers.values())


def _are_points(points: Any) -> bool:
    pairs = isinstance(points, list) and all(isinstance(point, list | tuple) and len(point) == 2 for point in points)
    return pairs and all(type(number) in (int, float) for point in points for number in point)


def write(folder: Path, result: Result) -> None:
    """Writes `result.json` into a run folder, sealed and with a digest of the metrics of the same run."""
    write_sealed(folder / RESULT, {**asdict(result), METRICS: _digest(folder / METRICS)})


def read(folder: Path) -> Result:
    """The result in a run folder; `InputError` if the result or the metrics were changed."""
    content, path = read_sealed(folder / RESULT), folder / METRICS
    names = {known.name for known in fields(Result)}
    missing = sorted(names - content.keys() - {"baselines", "state", "curves", "details", "step_seconds"})
    got = f"{folder / RESULT} without"
    require(not missing, RESULT, f"a file with {', '.join(missing)}", got, "Delete it, and measure the run again.")
    intact = content.get(METRICS) == _digest(path)
    require(intact, METRICS, f"unchanged since {RESULT} was written", f"{path} with changed content", REMEDY)
    return Result(**{name: value for name, value in content.items() if name in names})


def _digest(path: Path) -> str:
    return hashlib.sha256(read_file(path, METRICS)).hexdigest()
