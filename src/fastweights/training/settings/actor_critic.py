"""Settings of `loops/actor_critic.py`."""

from dataclasses import dataclass
from typing import Literal, get_args

from fastweights.core.errors import require, require_name
from fastweights.training.settings._training import Training, require_numbers, require_positive

MOST_ACTORS = 1024

Mode = Literal["synchronous", "impala", "hogwild"]


@dataclass(frozen=True, kw_only=True)
class ActorCritic(Training):
    """Settings of an agent, trained by V-trace and RMSProp. Losses are sums over an unroll, as in IMPALA.

    Args:
        batch_size: Number of parallel environments.
        unroll: Number of steps of every environment per training step.
        acting: Mode of acting: "synchronous" for acting and learning in turn; "impala" for actor processes with the
            weights of the previous training step; "hogwild" for actor processes that also learn, and update shared
            weights without a lock (A3C). With the last two, a resumed run starts new episodes.
        actors: Number of actor processes, which share the environments; unused if synchronous.
        truncate: Number of steps of backpropagation through a memory; 0 for the whole unroll. The public code of the
            papers uses 1 for fast weights, unlike their text.
        learning_rate: Learning rate of RMSProp.
        anneal: Fraction by which the learning rate falls linearly until the last training step.
        alpha: Decay of the squared gradients of RMSProp.
        epsilon: Epsilon of RMSProp.
        squares: Initial mean of squared gradients of RMSProp: 0 in PyTorch, 1 in TensorFlow. With 1, weights with small
            gradients take small steps at first. With 0 the first steps are ten times as long as later ones, and most
            units of a convolutional encoder may die permanently.
        clip: Maximum gradient norm; 0 for no limit.
        discount: Discount factor of rewards per step.
        bootstrap_time_limits: Whether the value of the last observation replaces the rewards after a time limit.
            Truncation is not termination. False treats both alike, as in the papers.
        value_cost: Coefficient of half the squared errors of values.
        entropy_cost: Coefficient of the entropy of the policy.
        reward_scale: Factor of rewards in the loss. Values are learnt fast if discounted returns are of the order of 1
            to 100. Reported returns are not scaled.
        clip_reward: Maximum absolute reward in the loss, after `reward_scale`; 0 for no limit. Reported returns are not
            clipped.
        episodes: Number of episodes of an evaluation.
        greedy: Whether evaluations take the most probable action, rather than a sampled one.
        longest: Maximum mean number of steps per episode of an evaluation; later steps are cut off.
    """

    unroll: int
    acting: Mode = "synchronous"
    actors: int = 2
    truncate: int = 0
    learning_rate: float
    anneal: float = 1.0
    alpha: float = 0.99
    epsilon: float = 0.01
    squares: float = 0.0
    clip: float = 40.0
    discount: float = 0.99
    bootstrap_time_limits: bool = True
    value_cost: float = 0.5
    entropy_cost: float = 0.01
    reward_scale: float = 1.0
    clip_reward: float = 1.0
    episodes: int = 100
    greedy: bool = True
    longest: int = 27_000

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, ("unroll", "episodes", "longest"), 1)
        require_numbers(self, ("truncate", "squares", "clip", "value_cost", "entropy_cost", "clip_reward"), 0)
        require_positive(self, ("learning_rate", "epsilon", "reward_scale"))
        for name in ("alpha", "anneal", "discount"):
            require(0 <= getattr(self, name) <= 1, name, "from 0 to 1", getattr(self, name))
        require_name("acting", self.acting, get_args(Mode))
        require_numbers(self, ("actors",), 1, MOST_ACTORS)
        if self.acting != "synchronous":
            self._require_shares()

    def learning_rate_at(self, step: int) -> float:
        """Linear decay by the fraction `anneal`."""
        return self.learning_rate * (1 - self.anneal * step / self.steps)

    @property
    def frames(self) -> int:
        """Number of environment steps per training step."""
        return self.batch_size * self.unroll // (self.actors if self.acting == "hogwild" else 1)

    def _require_shares(self) -> None:
        """`InputError` unless the actors can share the environments, and processes the model."""
        shares = self.devices * self.actors
        require(self.batch_size % shares == 0, "batch_size", f"a multiple of {shares}, of all actors", self.batch_size)
        require(not self.compiled, "compiled", "False for actors in processes", self.compiled)
        if self.acting == "hogwild":
            got = (self.devices, self.accumulate, self.precision)
            single = (1, 1, "32-true")
            require(got == single, "devices, accumulate, precision", f"{single} with hogwild", got)
