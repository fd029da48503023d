"""Measurements on test data: metrics, details and points of curves, told apart by the type of their keys."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Detail(NamedTuple):
    """Key of a number about a part of the test data: `Detail("instance", "3")` for the third image of a class.

    >>> str(Detail("instance", "3"))
    'instance 3'
    """

    group: str
    member: str

    def __str__(self) -> str:
        return f"{self.group} {self.member}"


class OnValidation(NamedTuple):
    """Key of a metric on validation data, in tables where a name alone is a metric on test data."""

    metric: str

    def __str__(self) -> str:
        return f"{self.metric} on validation data"


Key = str | Detail | OnValidation
"""Key of a number in a table: the name of a metric on test data, a detail, or a metric on validation data."""


class Point(NamedTuple):
    """Key of the number at `x` on a curve over test data, such as the accuracy at a time step of all sequences."""

    curve: str
    x: float


class Measurements(NamedTuple):
    """Metrics by name, curves as pairs (x, y) by name, and details by group and member."""

    metrics: dict[str, float]
    curves: dict[str, list[tuple[float, float]]]
    details: dict[str, dict[str, float]]


def sort_measurements(numbers: Mapping[Any, float]) -> Measurements:
    """Numbers by the type of their keys (the name of a metric, `Detail` or `Point`), in the same order.

    >>> sort_measurements(
    ...     {"loss": 0.5, Point("accuracy", 1): 0.3, Detail("instance", "3"): 0.9}
    ... )
    Measurements(metrics={'loss': 0.5}, curves={'accuracy': [(1, 0.3)]}, details={'instance': {'3': 0.9}})
    """
    sorted_numbers = Measurements({}, {}, {})
    for key, number in numbers.items():
        match key:
            case Point(curve, x):
                sorted_numbers.curves.setdefault(curve, []).append((x, number))
            case Detail(group, member):
                sorted_numbers.details.setdefault(group, {})[member] = number
            case _:
                sorted_numbers.metrics[key] = number
    return sorted_numbers
