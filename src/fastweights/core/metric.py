"""A number by which models are compared. Only here is it known which of two is better."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Form = Literal["plain", "percent", "error"]
"""As measured, in per cent, or what is missing to 100 %."""


class Metric(NamedTuple):
    """A metric by its name among those that a task measures, its direction, and how a table tells it.

    >>> error = ACCURACY.told("error", "test error, %")
    >>> error.value(0.75), error.best is min, ACCURACY.cost(0.75)
    (25.0, True, -0.75)
    """

    name: str
    low_is_good: bool
    form: Form = "plain"
    label: str = ""
    data: Literal["test", "validation"] = "test"

    def told(self, form: Form, label: str, data: Literal["test", "validation"] = "test") -> "Metric":
        """The same in a table: in a form, under a label, on test data, or on validation data where an experiment is
        there to choose something."""
        return self._replace(form=form, label=label, data=data)

    def cost(self, measured: float) -> float:
        """The smaller, the better."""
        return measured if self.low_is_good else -measured

    def value(self, measured: float) -> float:
        """The number that stands in a table."""
        return {"plain": measured, "percent": 100 * measured, "error": 100 * (1 - measured)}[self.form]

    @property
    def best(self) -> Callable[..., Any]:
        """What chooses among numbers of a table: `min` or `max`."""
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
"""From 0 to 100."""
SIGNATURE = "sacreBLEU: cased, 13a tokens, exponential smoothing, one reference"
"""How that is measured."""
PERPLEXITY = Metric("perplexity", low_is_good=True)
BITS = Metric("bits", low_is_good=True)
"""Of the loss: the mean over what is predicted, a token say."""

RETURN = Metric("return", low_is_good=False)
"""The sum of the rewards of an episode, in the mean over episodes."""
SCORE = Metric("score", low_is_good=False)
"""Returns of several games, each between what random actions and the best agents come to, in the mean over games."""


def still_improving(costs: Sequence[float]) -> bool:
    """Whether the first of the smallest costs is among the last fifth, or the last: it was not yet flat.

    >>> still_improving([5, 4, 3, 2, 1]), still_improving([5, 1, 3, 2, 1])
    (True, False)
    """
    finite = [cost if math.isfinite(cost) else math.inf for cost in costs]
    return finite.index(min(finite)) >= len(finite) - max(len(finite) // 5, 1)
