"""A sentence of a paper as comparisons of measured numbers, each tested with an interval over seeds.

It does not import torch, since the command line and the report import it.
"""

from collections.abc import Mapping
from enum import Enum
from math import atan, cos, inf, isfinite, pi, sin, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from fastweights.core.measurements import Detail, Key, OnValidation

CONFIDENCE = 0.95

Place = tuple[str, Key]
"""A model, and a column, another metric or a detail: a number of the table."""


class Until(NamedTuple):
    """Training steps until the validation metric of a model in a column reaches `value`, in the units of the table.

    A run that never reaches it counts with all of its training steps.
    """

    model: str
    column: str
    value: float


class Gap(NamedTuple):
    """The number of one place minus that of another, seed by seed."""

    high: Place
    low: Place


class Each(NamedTuple):
    """Several places, each of which is a separate sample: two such quantities are paired place by place."""

    places: tuple[Place, ...]


Quantity = Place | Until | Gap | Each | float
"""A side of a comparison: measured numbers, or a constant."""

Seeds = Mapping[int, float]
"""A number per seed."""


class Evidence(NamedTuple):
    """Measured numbers by seed.

    `values` are the numbers of the table, its details and its baselines. `curves` are evaluations on validation data:
    pairs of a training step and a number in the units of the table.
    """

    values: Mapping[Place, Seeds]
    curves: Mapping[Place, Mapping[int, list[tuple[int, float]]]]
    low_is_good: bool

    def samples(self, quantity: Quantity) -> dict[tuple[int, int], float] | float | None:
        """A quantity by seed and place; a constant unchanged; None if a place was not measured."""
        match quantity:
            case Until(model, column, value):
                by_place = [
                    {seed: self._until(curve, value) for seed, curve in self.curves.get((model, column), {}).items()}
                ]
            case Gap(high, low):
                above, below = (self.values.get(place, {}) for place in (high, low))
                by_place = [{seed: above[seed] - below[seed] for seed in above.keys() & below.keys()}]
            case Each(places):
                by_place = [dict(self.values.get(place, {})) for place in places]
            case (str(), str() | Detail() | OnValidation()):
                by_place = [dict(self.values.get(quantity, {}))]
            case _:
                return float(quantity)
        if not all(by_place):
            return None
        return {(seed, n): value for n, seeds in enumerate(by_place) for seed, value in seeds.items()}

    def _until(self, curve: list[tuple[int, float]], value: float) -> float:
        reached = [step for step, x in curve if (x <= value if self.low_is_good else x >= value)]
        return float(reached[0] if reached else curve[-1][0])


class Interval(NamedTuple):
    """A mean, the ends of its interval, and the number of samples."""

    mean: float
    low: float
    high: float
    samples: int


class Above(NamedTuple):
    """high > times * low + by"""

    high: Quantity
    low: Quantity
    by: float = 0.0
    times: float = 1.0

    def interval(self, evidence: Evidence) -> Interval | None:
        """Interval of high - times * low - by, by Student's t over the samples that both sides have.

        A sample is a seed, or a seed and a place. None if a side was not measured.
        """
        high, low = evidence.samples(self.high), evidence.samples(self.low)
        if high is None or low is None:
            return None
        units = [side.keys() for side in (high, low) if isinstance(side, dict)]
        common = sorted(set.intersection(*map(set, units)))
        differences = [_at(high, unit) - self.times * _at(low, unit) - self.by for unit in common]
        return _student(differences) if differences else None

    def verdict(self, evidence: Evidence) -> "Verdict":
        """Whether the interval is above 0, below it, or on both sides."""
        interval = self.interval(evidence)
        if interval is None:
            return Verdict.NOT_TESTED
        return (
            Verdict.SUPPORTED if interval.low > 0 else Verdict.CONTRADICTED if interval.high < 0 else Verdict.UNDECIDED
        )


def above(high: Quantity, *lows: Quantity, by: float = 0.0, times: float = 1.0) -> tuple[Above, ...]:
    """One quantity above each of several others."""
    return tuple(Above(high, low, by, times) for low in lows)


def below(low: Quantity, *highs: Quantity, by: float = 0.0, times: float = 1.0) -> tuple[Above, ...]:
    """One quantity below each of several others."""
    return tuple(Above(high, low, by, times) for high in highs)


def places(column: Key, *models: str) -> tuple[Place, ...]:
    """The places of several models in one column."""
    return tuple((model, column) for model in models)


class Verdict(Enum):
    """The result of testing a sentence on measured numbers."""

    SUPPORTED = "Supported"
    CONTRADICTED = "Contradicted"
    UNDECIDED = "Undecided"
    NOT_TESTED = "Not tested"


class Claim(NamedTuple):
    """A sentence that a report tests.

    Args:
        sentence: The sentence, quoted if it is from the paper.
        source: Its position in the paper; empty for a sentence of ours, which verdicts on the paper ignore.
        parts: Comparisons that have to hold.
        at_least: The number of them that have to hold; all if None.
    """

    sentence: str
    source: str
    parts: tuple[Above, ...]
    at_least: int | None = None

    def verdict(self, evidence: Evidence) -> Verdict:
        """Supported if enough comparisons are; contradicted if so many are that the others cannot be enough."""
        verdicts = [part.verdict(evidence) for part in self.parts]
        required = len(verdicts) if self.at_least is None else self.at_least
        if verdicts.count(Verdict.SUPPORTED) >= required:
            return Verdict.SUPPORTED
        if verdicts.count(Verdict.CONTRADICTED) > len(verdicts) - required:
            return Verdict.CONTRADICTED
        return Verdict.NOT_TESTED if Verdict.NOT_TESTED in verdicts else Verdict.UNDECIDED

    @property
    def places(self) -> set[Place]:
        """The places that must be measured to test it."""
        sides = [side for part in self.parts for side in (part.high, part.low)]
        return {place for side in sides for place in _places(side)}


def _places(side: Quantity) -> tuple[Place, ...]:
    match side:
        case Until(model, column, _):
            return ((model, column),)
        case Gap(high, low):
            return high, low
        case Each(places):
            return places
        case (str() as model, (str() | Detail() | OnValidation()) as column):
            return ((model, column),)
    return ()


def _at(side: dict[tuple[int, int], float] | float, unit: tuple[int, int]) -> float:
    return side[unit] if isinstance(side, dict) else side


def _student(samples: list[float]) -> Interval:
    """The mean with its t interval; a single sample, or one that is not finite, has an interval without ends."""
    mean, count = fmean(samples), len(samples)
    if count < 2 or not all(map(isfinite, samples)):
        return Interval(mean, -inf, inf, count)
    half = student_quantile((1 + CONFIDENCE) / 2, count - 1) * stdev(samples) / sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def student_quantile(probability: float, degrees: int) -> float:
    """The quantile of Student's t distribution with a whole number of degrees of freedom, above 1/2.

    >>> round(student_quantile(0.975, 2), 3), round(student_quantile(0.975, 10), 3)
    (4.303, 2.228)
    """
    low, high = 0.0, 1.0
    while _student_cdf(high, degrees) < probability:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, degrees) < probability else (low, middle)
    return high


def _student_cdf(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0, by the finite series in cos(theta) = sqrt(n / (n + t^2)).

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    theta = atan(t / sqrt(degrees))
    odd = degrees % 2
    term, total = (cos(theta), 0.0) if odd else (1.0, 0.0)
    for n in range(1 + odd, degrees, 2):
        total += term
        term *= cos(theta) ** 2 * n / (n + 1)
    area = 2 / pi * (theta + sin(theta) * total) if odd else sin(theta) * total
    return (1 + area) / 2
