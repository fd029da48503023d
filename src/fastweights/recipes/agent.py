"""An agent in any environment of Gymnasium."""

from dataclasses import dataclass
from typing import Any, ClassVar

from fastweights.core.errors import require
from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, above
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes._sizes import DEEPEST, WIDEST
from fastweights.training.settings._training import require_numbers
from fastweights.training.settings.actor_critic import ActorCritic


@dataclass(frozen=True, kw_only=True)
class AgentRecipe(ActorCritic):
    """A reinforcement learning agent in an environment of Gymnasium.

    Data: yours: --env ID of Gymnasium, MODULE:CLASS or PATH.py:CLASS.

    Source: actor and critic are smaller versions of those of Irie et al. 2021, Sec. 4.3; V-trace of Espeholt et al.
    2018 (IMPALA).

    Args:
        env: ID of an environment, such as CartPole-v1 or PACKAGE:ID, or a custom environment MODULE:NAME or
            PATH.py:NAME. NAME is a class of environments, a function that makes one, or an ID that the module
            registers.
        layer: Layer: a name from "fastweights list layers", or a custom layer MODULE:NAME or PATH.py:NAME. Several
            names with commas alternate over the blocks: "delta-net,softmax-attention".
        d_model: Size of the input of the layer.
        num_layers: Number of blocks; 0 for the layer alone.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks.
        conv_size: Width of the causal convolution in front of each layer, in time steps; 0 for none.
        hidden: Number of ReLU units between a vector observation and the blocks; 0 for none.
        vision: Vision encoder of image observations, from "fastweights list vision-encoders".
        use_last_reward: Last reward as an additional input.
        use_last_action: Last action as an additional input.
    """

    env: str = "CartPole-v1"
    layer: str = "delta-net"
    d_model: int = 64
    num_layers: int = 1
    num_heads: int = 4
    d_ff: int = 128
    conv_size: int = 0
    hidden: int = 64
    vision: str = "impala"
    use_last_reward: bool = True
    use_last_action: bool = False

    steps: int = 1_000
    batch_size: int = 16
    rollout_length: int = 20
    evaluate_every: int = 100
    learning_rate: float = 1e-3
    epsilon: float = 1e-5
    initial_square_avg: float = 1.0
    clip_reward: float = 0.0
    episodes: int = 32

    DATA: ClassVar[tuple[str, ...]] = ("env", "use_last_reward", "use_last_action")
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {},
        "smoke": {
            **{"d_model": 8, "num_heads": 2, "d_ff": 8, "hidden": 8, "steps": 4, "evaluate_every": 2},
            **{"batch_size": 4, "rollout_length": 8, "episodes": 4, "max_episode_steps": 50},
        },
    }
    USE: ClassVar[str] = "render RUN"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.env != "", "env", "the ID of an environment", "an empty name")
        require_numbers(self, ("d_model", "num_heads", "d_ff"), 1, WIDEST)
        require_numbers(self, ("num_layers",), 0, DEEPEST)
        require_numbers(self, ("conv_size", "hidden"), 0, WIDEST)

    def trial(self) -> Trial:
        """The training that the flags describe."""
        names = ("layer", "d_model", "num_layers", "num_heads", "d_ff", "conv_size", "hidden")
        more = ("vision", "use_last_reward", "use_last_action")
        model = {name: getattr(self, name) for name in (*names, *more)}
        return Trial("gymnasium-environment", {"id": self.env}, "agent", model, ActorCritic.among(self))


MODELS = {"delta-net": "DeltaNet", "gated-delta": "Gated DeltaNet", "srwm": "SRWM", "lstm": "LSTM"}
COLUMNS = {"CartPole-v1": "CartPole", "Pendulum-v1": "Pendulum"}
OWN: dict[str, dict[str, Any]] = {"Pendulum-v1": {"reward_scale": 0.1, "gamma": 0.9}}
"""Flags per environment: rewards of Pendulum go down to -16 per step."""


def trial(model: str, column: str, preset: str) -> Trial:
    """The settings of `fastweights train agent` with another layer and environment."""
    return AgentRecipe(**{**AgentRecipe.PRESETS[preset], **OWN.get(column, {}), "layer": model, "env": column}).trial()


EXPERIMENT = Experiment(
    title="Agents in environments of Gymnasium",
    source="Our own check (CartPole: Barto, Sutton and Anderson 1983)",
    display=Display("return"),
    models=MODELS,
    columns=COLUMNS,
    published={},
    presets={
        "smoke": Preset(tuple(COLUMNS), tuple(MODELS)[:2]),
        "cpu": Preset(tuple(COLUMNS), tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim("DeltaNet balances the pole: a return above 450.", "", above(("delta-net", "CartPole-v1"), 450.0)),
        Claim("DeltaNet swings the pendulum up: a return above -300.", "", above(("delta-net", "Pendulum-v1"), -300.0)),
    ),
    notes=(
        "All layers have the settings of `fastweights train agent`; Pendulum has `--reward-scale 0.1 --gamma 0.9`.",
    ),
    sanity="This comparison is ours, without numbers of a paper.",
)
