"""What an axis shows: from where to where, in logarithms or not, and less than all if the rest is better seen."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from statistics import median
from typing import NamedTuple

DECADES = 1.5
"""From so many decades on, errors and losses stand on a logarithmic axis."""
STRETCH = 5
"""By how much the few must stretch the axis of the others to be left out."""
LEAST, MOST = -307.0, 308.0
"""Powers of ten that a float can be with all its digits; what is less has no place on a logarithmic axis, like 0."""


class Limits(NamedTuple):
    """The lowest and the highest number on an axis, and whether its steps are factors."""

    low: float
    high: float
    logarithmic: bool

    def place(self, value: float) -> float:
        """How far up the axis a number stands: 0 at its foot, 1 at its top."""
        low, high, found = (self._scaled(number) for number in (self.low, self.high, value))
        return (found - low) / (high - low)

    def _scaled(self, value: float) -> float:
        return _logarithm(value) if self.logarithmic else value


def find_limits(lines: Sequence[Sequence[float]], logarithmic: bool, errors: bool) -> Limits:
    """The limits of an axis with these lines on it, several of which may be of one model.

    Left out are up to a third of the lines, then up to a twentieth of the numbers, at either end, if the axis would
    have to be `STRETCH` times as long for them.

    Args:
        lines: Numbers, some of them perhaps not finite.
        logarithmic: Whether the axis has to be logarithmic, so far as numbers are above 0.
        errors: Whether low is good: then it is if numbers go over `DECADES`.
    """
    finite = [[value for value in line if math.isfinite(value)] for line in lines]
    above = [[_logarithm(value) for value in line if _has_logarithm(value)] for line in finite]
    low, high = _ends(above)
    losses = errors and list(map(len, above)) == list(map(len, finite))
    if any(above) and (logarithmic or (losses and high - low >= DECADES)):
        margin = 0.05 * (high - low) or 0.1
        return Limits(10 ** max(low - margin, LEAST), 10 ** min(high + margin, MOST), logarithmic=True)
    low, high = _ends(finite)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return Limits(low - margin, high + margin, logarithmic=False)


def _ends(lines: Iterable[Sequence[float]]) -> tuple[float, float]:
    """The lowest and the highest of the numbers to show."""
    lines = [line for line in lines if line]
    if not lines:
        return 0.0, 1.0
    most = _without_the_few(lines, len(lines) // 3)
    values = [[value] for line in most for value in line]
    numbers = [value for (value,) in _without_the_few(values, len(values) // 20)]
    return min(numbers), max(numbers)


def _without_the_few(groups: Sequence[Sequence[float]], spare: int) -> list[Sequence[float]]:
    """All groups of numbers but the farthest out, at most `spare`, for which the range would be `STRETCH` times as
    long."""
    centre = median(chain.from_iterable(groups))
    inwards = sorted(groups, key=lambda group: max(abs(max(group) - centre), abs(min(group) - centre)))
    highs, lows = accumulate(map(max, inwards), max), accumulate(map(min, inwards), min)
    ranges = [high - low for high, low in zip(highs, lows, strict=True)]
    fits = (kept for kept in range(len(groups) - 1, len(groups) - spare - 1, -1))
    found = next((kept for kept in fits if ranges[kept - 1] * STRETCH <= ranges[-1] > 0), len(groups))
    return inwards[:found]


def _logarithm(value: float) -> float:
    return math.log10(value) if _has_logarithm(value) else -math.inf


def _has_logarithm(value: float) -> bool:
    return value >= 10**LEAST
