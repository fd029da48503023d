"""Metrics by which models are compared. Only this module knows which of two values is better."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from fastweights.core.errors import require

Form = Literal["plain", "percent", "error"]
"""The number as measured, in per cent, or its difference to 100 %."""


class Display(NamedTuple):
    """The way a table shows the main metric of its task.

    Args:
        label: Name and unit.
        form: "plain" as measured, "percent" of a fraction, or "error" for the percentage that is missing to 100.
        data: "test", or "validation" for an experiment that chooses settings.
        loss: Whether the table shows the loss, which every task measures, in place of the main metric.
    """

    label: str = ""
    form: Form = "plain"
    data: Literal["test", "validation"] = "test"
    loss: bool = False


class Metric(NamedTuple):
    """A metric by its name among the numbers that a task measures, its direction, and its display in a table.

    >>> error = ACCURACY.shown(Display("test error, %", "error"))
    >>> error.value(0.75), error.best is min, ACCURACY.cost(0.75)
    (25.0, True, -0.75)
    """

    name: str
    low_is_good: bool
    display: Display = Display()

    @staticmethod
    def read(stored: Any) -> "Metric":
        """A metric from the facts that a run stores; `InputError` if they are something else."""
        known = isinstance(stored, dict) and stored.keys() == {"name", "low_is_good"}
        known = known and isinstance(stored["name"], str) and isinstance(stored["low_is_good"], bool)
        require(known, "metric", "an object with name and low_is_good", repr(stored)[:80])
        return Metric(**stored)

    def stored(self) -> dict[str, Any]:
        """The facts that a run stores."""
        return {"name": self.name, "low_is_good": self.low_is_good}

    def shown(self, display: Display) -> "Metric":
        """The metric of a table: this one, or the loss, with the display of the table."""
        return (LOSS if display.loss else self)._replace(display=display)

    def cost(self, measured: float) -> float:
        """The metric as a cost: smaller is better."""
        return measured if self.low_is_good else -measured

    def value(self, measured: float) -> float:
        """The number in a table."""
        return {"plain": measured, "percent": 100 * measured, "error": 100 * (1 - measured)}[self.display.form]

    @property
    def best(self) -> Callable[..., Any]:
        """The choice among numbers of a table: `min` or `max`."""
        return min if self.low_is_good != (self.display.form == "error") else max

    def cost_at(self, evaluation: Mapping[str, Any]) -> float:
        """The cost on validation data, from a line of `metrics.jsonl`."""
        return self.cost(evaluation["validation"][self.name])

    def at(self, evaluation: Mapping[str, Any], data: str = "validation") -> float:
        """The number on some data, from a line of `metrics.jsonl`."""
        return self.value(evaluation[data][self.name])


ACCURACY = Metric("accuracy", low_is_good=False)
LOSS = Metric("loss", low_is_good=True)
BLEU = Metric("bleu", low_is_good=False)
"""BLEU score from 0 to 100."""
SIGNATURE = "sacreBLEU: cased, 13a tokens, exponential smoothing, one reference"
"""Signature of the BLEU score, which says how it is computed."""
PERPLEXITY = Metric("perplexity", low_is_good=True)
BITS = Metric("bits", low_is_good=True)
"""The loss in bits, as a mean over predictions, such as tokens."""

RETURN = Metric("return", low_is_good=False)
"""Sum of the rewards of an episode, as a mean over episodes."""
SCORE = Metric("score", low_is_good=False)
"""Mean over games of the return, scaled so that random actions score 0 and the best agents 1."""


def still_improving(costs: Sequence[float]) -> bool:
    """Whether the smallest cost first occurs in the last fifth of all, or at the end: training was not yet converged.

    >>> still_improving([5, 4, 3, 2, 1]), still_improving([5, 1, 3, 2, 1])
    (True, False)
    """
    finite = [cost if math.isfinite(cost) else math.inf for cost in costs]
    return finite.index(min(finite)) >= len(finite) - max(len(finite) // 5, 1)
