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

Mode = Literal["synchronous", "impala", "hogwild"]


@dataclass(frozen=True, kw_only=True)
class ActorCritic(Training):
    """Settings of an agent, trained by V-trace and RMSProp. Losses are sums over an unroll, as in IMPALA.

    Args:
        batch_size: Unrolls an update.
        unroll_length: Time steps of an unroll.
        environments: Environments side by side, each of which makes unrolls; 0 for `batch_size`. Only "impala" can
            have more of them, as in the papers: an update takes the oldest unrolls.
        mode: Who acts: "synchronous", the learner itself, in turns; "impala", processes beside the learner, with
            weights that are an update old or more; "hogwild", processes that each learn, too, and change shared weights
            whenever they have found a gradient (A3C). With either of the last two, a resumed run starts new
            episodes.
        num_actors: Processes that act, among which the environments are shared out; none if synchronous.
        bptt_length: Steps that gradients reach back through a memory; 0 for the whole unroll. 1 is what the public code
            of the papers does for fast weights, and not what their text says.
        learning_rate: RMSProp's.
        anneal: Part of it that is gone at the last update; it falls linearly.
        alpha: RMSProp's.
        epsilon: RMSProp's.
        initial_square_avg: Where RMSProp's mean of squared gradients begins: 0 in PyTorch, 1 in TensorFlow. With 1,
            weights whose gradients are small take small steps at first. With 0 all take ten times those of later, and
            most units of an eye for pictures may go out for good before the agent knows what it earns.
        max_grad_norm: Largest norm of the gradient; 0 for no limit.
        gamma: Of rewards, a step.
        bootstrap_time_limits: Whether the value of the last observation of an episode that a time limit ended stands
            for the rewards that would follow. Truncation is not termination. False treats both alike, as the papers do.
        value_coef: Of half the squared errors of values.
        entropy_coef: What an agent gains by a nat of entropy of its policy.
        reward_scale: Factor of rewards that are learnt from. A value is learnt fast where discounted returns are of the
            order of 1 to 100. Reported returns are not scaled.
        clip_reward: Largest reward, to either side, that is learnt from, after `reward_scale`; 0 for no limit. Returns
            are reported without this limit.
        episodes: Number of episodes of an evaluation on validation data.
        test_episodes: Number of episodes of every set of the test; 0 for `episodes`.
        keep: Weights that are measured in the end: the "best" on validation data, or the "last", as in the papers.
        greedy: Whether the likeliest action is taken there, in place of a random one.
        max_episode_steps: Steps of such an episode, on average over those of an environment: what comes after that many
            in all of them is cut off.
    """

    unroll_length: int
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
        require_numbers(self, ("unroll_length", "episodes", "max_episode_steps"), 1)
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
        return self.batch_size * self.unroll_length // (self.num_actors if self.mode == "hogwild" else 1)

    @property
    def rows(self) -> int:
        """Environments side by side, those of all devices."""
        return self.environments or self.batch_size

    def _require_environments(self) -> None:
        """`InputError` unless every update has enough unrolls."""
        least = self.batch_size
        fits = self.rows == least or (self.mode == "impala" and self.rows > least)
        wanted = f"0, or at least {least} with mode='impala'"
        require(fits, "environments", wanted, f"{self.environments} with mode='{self.mode}'")

    def _require_shares(self) -> None:
        """`InputError` unless the environments can be shared out, and the model handed to processes."""
        shares, name = self.devices * self.num_actors, "environments" if self.environments else "batch_size"
        require(self.rows % shares == 0, name, f"a multiple of {shares}, of all actors", self.rows)
        require(not self.compile, "compile", "False for actors in processes", self.compile)
        if self.mode == "hogwild":
            got = (self.devices, self.gradient_accumulation_steps, self.precision)
            single = (1, 1, "32-true")
            require(got == single, "devices, gradient_accumulation_steps, precision", f"{single} with hogwild", got)
