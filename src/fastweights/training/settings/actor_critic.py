"""Settings of `loops/actor_critic.py`."""

from dataclasses import dataclass
from typing import Literal, get_args

from fastweights.core.errors import require, require_name
from fastweights.training.settings._training import Training, require_numbers, require_positive

MOST_ACTORS = 1024

FROM_ZERO = (
    *("bptt_length", "initial_square_avg", "max_grad_norm", "value_coef", "entropy_coef", "clip_reward"),
    *("environments", "test_episodes"),
)
"""Settings that may be 0."""

LONG = 10_000
"""Smallest number of time steps per environment for which the step of an agent is compiled."""

Mode = Literal["synchronous", "impala", "hogwild"]


@dataclass(frozen=True, kw_only=True)
class ActorCritic(Training):
    """Settings of an agent, trained by V-trace and RMSProp. Losses are sums over a rollout, as in IMPALA.

    Args:
        batch_size: Number of rollouts per training step.
        rollout_length: Number of time steps per rollout.
        environments: Number of parallel environments; 0 for `batch_size`. More environments than that need mode
            "impala", which trains on the oldest rollouts first, as in the papers.
        mode: Parallelism: "synchronous": the learner acts and learns in turns. "impala": separate processes act, with
            weights that are at least one training step old. "hogwild": separate processes act and learn, and update
            shared weights without locks (A3C). In the last two modes a resumed run starts new episodes.
        num_actors: Number of actor processes, which share the environments; unused in synchronous mode.
        bptt_length: Number of time steps of truncated backpropagation through time; 0 for the whole rollout. The public
            code of the papers has 1 for fast weights, unlike their text.
        learning_rate: Initial learning rate of RMSProp.
        anneal: Fraction of the learning rate that is lost by the end of a linear decay.
        alpha: Smoothing constant of RMSProp.
        epsilon: Epsilon of RMSProp.
        initial_square_avg: Initial mean of squared gradients of RMSProp: 0 in PyTorch, 1 in TensorFlow. With 0 the
            first training steps are ten times as large as later ones, and many units of a vision encoder can die.
        max_grad_norm: Maximum gradient norm; 0 for no limit.
        gamma: Discount factor of rewards per time step.
        bootstrap_time_limits: Bootstrapping at time limits: the value of the last observation stands for later rewards
            if a time limit ended the episode. Otherwise truncation counts as termination, as in the papers.
        value_coef: Coefficient of the value loss, which is half the squared error.
        entropy_coef: Coefficient of the entropy bonus of the policy, per nat.
        reward_scale: Factor of training rewards. Returns in the order of 1 to 100 are learned fastest. Reported returns
            are not scaled.
        clip_reward: Maximum absolute training reward, after `reward_scale`; 0 for no limit. Reported returns are not
            clipped.
        episodes: Number of episodes per evaluation on validation data.
        test_episodes: Number of episodes per set of test data; 0 for `episodes`.
        keep: Weights for the final evaluation: the "best" on validation data, or the "last", as in the papers.
        greedy: Most probable action in evaluations, instead of a sampled action.
        max_episode_steps: Maximum number of time steps per episode in evaluations, on average over the episodes of an
            environment.
    """

    rollout_length: int
    environments: int = 0
    mode: Mode = "synchronous"
    num_actors: int = 2
    bptt_length: int = 0
    learning_rate: float
    anneal: float = 1.0
    alpha: float = 0.99
    epsilon: float = 0.01
    initial_square_avg: float = 0.0
    max_grad_norm: float = 40.0
    gamma: float = 0.99
    bootstrap_time_limits: bool = True
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    reward_scale: float = 1.0
    clip_reward: float = 1.0
    episodes: int = 100
    test_episodes: int = 0
    keep: Literal["best", "last"] = "best"
    greedy: bool = True
    max_episode_steps: int = 27_000

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, ("rollout_length", "episodes", "max_episode_steps"), 1)
        require_numbers(self, FROM_ZERO, 0)
        require_positive(self, ("learning_rate", "epsilon", "reward_scale"))
        for name in ("alpha", "anneal", "gamma"):
            require(0 <= getattr(self, name) <= 1, name, "from 0 to 1", getattr(self, name))
        require_name("mode", self.mode, get_args(Mode))
        require_numbers(self, ("num_actors",), 1, MOST_ACTORS)
        self._require_environments()
        if self.mode != "synchronous":
            self._require_shares()

    def learning_rate_at(self, step: int) -> float:
        """Linear decay by the fraction `anneal`."""
        return self.learning_rate * (1 - self.anneal * step / self.steps)

    @property
    def frames(self) -> int:
        """Number of environment steps per training step."""
        return self.batch_size * self.rollout_length // (self.num_actors if self.mode == "hogwild" else 1)

    @property
    def compiles_steps(self) -> bool:
        """Whether agents act for long enough that their time step is worth compiling, which takes seconds."""
        return self.steps * self.rollout_length >= LONG

    @property
    def rows(self) -> int:
        """Environments side by side, those of all devices."""
        return self.environments or self.batch_size

    def _require_environments(self) -> None:
        """`InputError` unless every update has enough rollouts."""
        least = self.batch_size
        fits = self.rows == least or (self.mode == "impala" and self.rows > least)
        requirement = f"0, or at least {least} with mode='impala'"
        require(fits, "environments", requirement, f"{self.environments} with mode='{self.mode}'")

    def _require_shares(self) -> None:
        """`InputError` unless the environments can be shared out, and the model handed to processes."""
        shares, name = self.devices * self.num_actors, "environments" if self.environments else "batch_size"
        require(self.rows % shares == 0, name, f"a multiple of {shares}, of all actors", self.rows)
        require(self.compile is False, "compile", "False for actors in processes", self.compile)
        if self.mode == "hogwild":
            got = (self.devices, self.gradient_accumulation_steps, self.precision)
            single = (1, 1, "32-true")
            require(got == single, "devices, gradient_accumulation_steps, precision", f"{single} with hogwild", got)
