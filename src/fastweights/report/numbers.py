"""Numbers of tables as text: means with their deviations, and the numbers of the papers."""

from math import floor, isfinite, log10

from fastweights.experiments.experiment import Published, Summary

SMALL = 1e-4
"""Numbers below it are written with an exponent."""


def format_summary(summary: Summary | None, missing: str = "not run") -> str:
    """The mean over seeds, the standard deviation, and the number of seeds."""
    if summary is None:
        return missing
    size = max(abs(summary.mean), summary.deviation or 0.0)
    spread = "" if summary.deviation is None else f" ± {number(summary.deviation, size)}"
    return f"{number(summary.mean, size)}{spread} ({len(summary.values)})"


def format_published(published: Published | None) -> str:
    """A number of a paper; empty if there is none."""
    if published is None:
        return ""
    spread = "" if published.deviation is None else f" ± {published.deviation:g}"
    return f"{'≤ ' if published.at_most else ''}{published.value:g}{spread}"


def number(value: float, size: float | None = None) -> str:
    """Three significant digits of a number of this size, but at least two decimals, as percentages of the papers have.

    A mean and its deviation have the same number of digits.

    Args:
        value: The number.
        size: A number of the same order; `value` if None.
    """
    size = abs(value) if size is None else size
    if not isfinite(size) or size == 0 or size >= 1:
        return f"{value:.2f}"
    return f"{value:.{2 - floor(log10(size))}f}" if size >= SMALL else f"{value:.3g}"
