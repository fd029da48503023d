"""Metrics by which models are compared. Only this module knows which of two values is better."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Form = Literal["plain", "percent", "error"]
"""The number as measured, in per cent, or its difference to 100 %."""


class Metric(NamedTuple):
    """A metric: its name among those that a task measures, its direction, and its form in a table.

    >>> error = ACCURACY.reported("error", "test error, %")
    >>> error.value(0.75), error.best is min, ACCURACY.cost(0.75)
    (25.0, True, -0.75)
    """

    name: str
    low_is_good: bool
    form: Form = "plain"
    label: str = ""
    data: Literal["test", "validation"] = "test"

    def reported(self, form: Form, label: str, data: Literal["test", "validation"] = "test") -> "Metric":
        """The metric in a table: its form, its label, and the data on which it is measured.

        An experiment that chooses settings uses validation data.
        """
        return self._replace(form=form, label=label, data=data)

    def cost(self, measured: float) -> float:
        """The metric as a cost: smaller is better."""
        return measured if self.low_is_good else -measured

    def value(self, measured: float) -> float:
        """The number that a table shows."""
        return {"plain": measured, "percent": 100 * measured, "error": 100 * (1 - measured)}[self.form]

    @property
    def best(self) -> Callable[..., Any]:
        """The function that picks the best number of a table: `min` or `max`."""
        return min if self.low_is_good != (self.form == "error") else max

    def cost_at(self, line: Mapping[str, Any]) -> float:
        """The cost of an evaluation, a line of `metrics.jsonl`."""
        return self.cost(line[f"validation_{self.name}"])

    def at(self, line: Mapping[str, Any], data: str = "validation") -> float:
        """The number of an evaluation on some data, a line of `metrics.jsonl`."""
        return self.value(line[f"{data}_{self.name}"])


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
