"""Catch with a blank screen after the first frames: agents with a recurrent network, an LSTM, and fast weights."""

from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.claim import Above, Claim, Gap, Until, above, below
from fastweights.experiments.experiment import Experiment, Preset, Sanity, Trial
from fastweights.training.settings.actor_critic import ActorCritic

MODELS = {"irnn": "ReLU RNN", "lstm": "LSTM", "fast-weight-rnn": "Fast weights"}
FAST, OTHERS = "fast-weight-rnn", ("irnn", "lstm")
HALF = 0.5
"""The return at which learning curves are compared: three balls of four are caught."""

COLUMNS = {"16-3": "N = 16, M = 3", "24-5": "N = 24, M = 5"}
RATES = {("irnn", "24-5"): 3.5e-3}
"""The best rates of ba2016/catch-rates, by network and screen, if they are not 6e-3."""
A3C = {"mode": "hogwild", "num_actors": 16, "device": "cpu"}
TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 4, "evaluate_every": 2, "batch_size": 4, "episodes": 8},
    "cpu": {"steps": 800, "evaluate_every": 50, "batch_size": 256, "episodes": 192},
    "paper": {"steps": 320_000, "evaluate_every": 8_000, "batch_size": 256, "episodes": 1_000, **A3C},
}


def trial(model: str, column: str, preset: str) -> Trial:
    """A network with 64 units after 64 rectified linear units, and a rollout of one episode."""
    size, visible_frames = (int(number) for number in column.split("-"))
    network = {"layer": model, "d_model": 64, "num_layers": 0, "num_heads": 1, "hidden": 64, "use_last_reward": False}
    rate = RATES.get((model, column), 6e-3)
    settings: dict[str, Any] = {"bootstrap_time_limits": False, **TRAINING[preset]}
    # Gradients are small in networks without layer normalisation: RMSProp's usual epsilon of 0.01 would slow them down.
    training = ActorCritic(rollout_length=size - 1, learning_rate=rate, epsilon=1e-5, greedy=False, **settings)
    return Trial(
        "catch",
        {"size": size, "visible_frames": visible_frames},
        "agent",
        {**network, "use_last_action": True},
        training,
    )


EXPERIMENT = Experiment(
    title="Catch with only the first M of N frames visible",
    source="Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 4.4, Figure 5",
    display=Display("return"),
    models=MODELS,
    columns=COLUMNS,
    published={},
    presets={
        "smoke": Preset(("16-3",), tuple(MODELS)),
        "cpu": Preset(tuple(COLUMNS), tuple(MODELS), seeds=3),
        "paper": Preset(tuple(COLUMNS), tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(
        *(
            Claim(
                f"With {COLUMNS[column]}, the agent using fast weights is able to learn faster than the agents using a "
                "ReLU RNN or an LSTM.",
                "Sec. 4.4",
                below(Until(FAST, column, HALF), *(Until(model, column, HALF) for model in OTHERS)),
            )
            for column in COLUMNS
        ),
        Claim(
            "The improvement obtained by fast weights is also more significant on the larger version of the game.",
            "Sec. 4.4",
            tuple(
                Above(Gap((FAST, "24-5"), (other, "24-5")), Gap((FAST, "16-3"), (other, "16-3"))) for other in OTHERS
            ),
        ),
        *(
            Claim(f"With {COLUMNS[column]}, fast weights catch: a return above 0.9.", "", above((FAST, column), 0.9))
            for column in COLUMNS
        ),
    ),
    notes=(
        "The paper has curves and no numbers. Its agents are trained by A3C; units, learning rate, discount, rollout "
        "and the number of threads are not stated, nor is the unit of its axes. Ours learn synchronously in preset "
        "cpu, and by A3C in 16 processes in preset paper. The 64 units are our choice.",
        "The paper does not state the first position of the paddle; here it is the middle, as in bsuite. Agents get "
        "their last action as an input, which is our choice, because a blank screen does not show it.",
        "Learning rates are the best on validation data in ba2016/catch-rates, one per network and screen.",
        "A return is 1 for a ball that is caught and -1 for one that is not; actions are drawn from the policy.",
    ),
    sanity=Sanity(columns=("16-3",), bound=0.8),
)
