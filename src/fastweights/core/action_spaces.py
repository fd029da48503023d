"""Action spaces, and the distribution over actions that a policy emits for each of them.

>>> Box((-1.0,), (1.0,)).distribution(torch.zeros(4, 2)).sample().shape
torch.Size([4, 1])
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, Normal
from torch.nn.functional import one_hot, pad

from fastweights.core.errors import require, require_name


class Actions(ABC):
    """An action space: a frozen dataclass whose fields are JSON values or tuples of them."""

    dtype = torch.int64
    """Data type of actions as the agent knows them."""

    learned = 0
    """Parameters of the distribution that are the same for all observations. They follow the outputs."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Parameters of the distribution that a network computes from an observation."""

    @property
    @abstractmethod
    def features(self) -> int:
        """Size of the encoding of one action."""

    @abstractmethod
    def distribution(self, parameters: Tensor) -> Distribution:
        """The policy: a distribution with `sample`, `mode`, `log_prob` and `entropy`.

        Args:
            parameters: `[..., outputs + learned]`, finite.
        """

    @abstractmethod
    def encode(self, actions: Tensor) -> Tensor:
        """Actions `[..., *shape]` as inputs of a network, `[..., features]`."""

    def blank(self, *sizes: int) -> Tensor:
        """Actions of zeros, `[*sizes, *shape]`."""
        return torch.zeros(*sizes, *self.shape, dtype=self.dtype)

    def facts(self) -> dict[str, Any]:
        """The space as JSON, for the run folder. An infinite bound is null."""
        values = {name: _as_json(value) for name, value in asdict(self).items()}  # type: ignore[call-overload]
        return {"kind": type(self).__name__, **values}


@dataclass(frozen=True)
class Discrete(Actions):
    """One of n actions. The policy is a categorical distribution.

    Args:
        n: Number of actions.
    """

    n: int

    def __post_init__(self) -> None:
        require(type(self.n) is int and self.n >= 1, "n", "a whole number of at least 1", repr(self.n))

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def outputs(self) -> int:
        return self.n

    @property
    def features(self) -> int:
        return self.n

    def distribution(self, parameters: Tensor) -> Distribution:
        return Categorical(logits=parameters, validate_args=False)

    def encode(self, actions: Tensor) -> Tensor:
        return one_hot(actions, self.n)


@dataclass(frozen=True)
class MultiDiscrete(Actions):
    """Several choices at once. The policy is an independent categorical distribution for each of them.

    Args:
        sizes: Number of options per choice. A binary choice has two.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        valid = isinstance(self.sizes, tuple) and bool(self.sizes)
        valid = valid and all(type(size) is int and size >= 1 for size in self.sizes)
        require(valid, "sizes", "whole numbers of at least 1", repr(self.sizes))

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sizes),)

    @property
    def outputs(self) -> int:
        return sum(self.sizes)

    @property
    def features(self) -> int:
        return sum(self.sizes)

    def distribution(self, parameters: Tensor) -> Distribution:
        most = max(self.sizes)
        rows = [pad(part, (0, most - part.shape[-1]), value=-inf) for part in parameters.split(self.sizes, -1)]
        return Independent(Categorical(logits=torch.stack(rows, -2), validate_args=False), 1, validate_args=False)

    def encode(self, actions: Tensor) -> Tensor:
        return torch.cat([one_hot(part, size) for part, size in zip(actions.unbind(-1), self.sizes, strict=True)], -1)


@dataclass(frozen=True)
class Box(Actions):
    """A vector of real numbers. The policy is a diagonal Gaussian whose log standard deviations are learned parameters.

    In a dimension with two finite bounds, the policy's -1 and 1 stand for the lower and the upper bound.

    Args:
        low: Lower bound per dimension, -inf for none.
        high: Upper bound per dimension, inf for none.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    dtype = torch.float32

    def __post_init__(self) -> None:
        valid = isinstance(self.low, tuple) and isinstance(self.high, tuple) and len(self.low) == len(self.high) > 0
        valid = valid and all(low <= high for low, high in zip(self.low, self.high, strict=True))
        require(valid, "low and high", "bounds of one size, with low at most high", f"{self.low} and {self.high}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.low),)

    @property
    def outputs(self) -> int:
        return len(self.low)

    @property
    def learned(self) -> int:  # type: ignore[override]
        return len(self.low)

    @property
    def features(self) -> int:
        return len(self.low)

    def distribution(self, parameters: Tensor) -> Distribution:
        mean, log_std = parameters.chunk(2, -1)
        return Independent(Normal(mean, log_std.exp(), validate_args=False), 1, validate_args=False)

    def encode(self, actions: Tensor) -> Tensor:
        return actions

    def bounded(self, actions: Tensor) -> Tensor:
        """Actions of the policy in the units of the environment, clipped to its bounds; float64 `[..., D]`."""
        low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (self.low, self.high))
        # Bounds as large as float32 goes stand for none.
        finite = (high - low).float().isfinite()
        scaled = torch.where(finite, low + (actions.double() + 1) / 2 * (high - low), actions.double())
        return scaled.clamp(low, high)


KINDS: dict[str, type[Actions]] = {kind.__name__: kind for kind in (Discrete, MultiDiscrete, Box)}


def read_actions(facts: Mapping[str, Any]) -> Actions:
    """The action space whose `facts` these are; `InputError` if they are no action space."""
    kind = facts.get("kind")
    require_name("action space", str(kind), KINDS)
    names = [field.name for field in fields(KINDS[str(kind)])]  # type: ignore[arg-type]
    require(
        facts.keys() == {"kind", *names}, "action space", f"an object with {', '.join(names)}", repr(dict(facts))[:80]
    )
    return KINDS[str(kind)](**{name: _field_value(name, facts[name]) for name in names})


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_json(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _field_value(name: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    bound = {"low": -inf, "high": inf}.get(name)
    if bound is None:
        return tuple(value)
    valid = all(part is None or type(part) in (int, float) for part in value)
    require(valid, name, "numbers", repr(value)[:80])
    return tuple(bound if part is None else float(part) for part in value)
