"""Agents in environments that need a memory, with gradients through the memory or cut after one step."""

from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, above, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.training.settings.actor_critic import ActorCritic

LAYERS = {"lstm": "LSTM", "delta-net": "DeltaNet", "recurrent-delta-net": "RDN", "srwm": "SRWM"}
CUT = "-cut"
MODELS = LAYERS | {f"{layer}{CUT}": f"{LAYERS[layer]}, cut" for layer in LAYERS if layer != "lstm"}
COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "t-maze": ("t-maze", {"length": 10}),
    "repeat-previous": ("gymnasium-environment", {"id": "popgym:popgym-RepeatPreviousEasy-v0"}),
    "autoencode": ("gymnasium-environment", {"id": "popgym:popgym-AutoencodeEasy-v0"}),
}
LABELS = {"t-maze": "T-maze, L = 10", "repeat-previous": "RepeatPrevious, easy", "autoencode": "Autoencode, easy"}
TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 4, "evaluate_every": 2, "batch_size": 4, "rollout_length": 12, "episodes": 4},
    "cpu": {"evaluate_every": 50, "episodes": 64, "patience": 10},
}
OWN: dict[str, dict[str, Any]] = {
    "t-maze": {"steps": 1_000, "batch_size": 128, "rollout_length": 33},
    "repeat-previous": {"steps": 1_000, "batch_size": 128, "rollout_length": 33, "gamma": 0.5},
    "autoencode": {"steps": 2_000, "batch_size": 40, "rollout_length": 104, "gamma": 0.5},
}
"""Settings of preset cpu per environment: a rollout as long as an episode if gradients must reach its beginning, and a
smaller discount if every reward is for the previous action, which reduces the noise of advantages."""
RATE = 8e-3
"""The best rate of all agents in agents/rates; at twice that, one run in four learns nothing."""


def trial(model: str, column: str, preset: str) -> Trial:
    """An agent with one block of D = 64 or an LSTM of 64 units, after 64 rectified linear units."""
    layer, (task, options) = model.removesuffix(CUT), COLUMNS[column]
    network: dict[str, Any] = {
        "layer": layer,
        "d_model": 64,
        "num_layers": 1,
        "num_heads": 4,
        "d_ff": 128,
        "hidden": 64,
    }
    if layer == "lstm":
        network |= {"num_layers": 0, "num_heads": 1}
    else:
        network["conv_size"] = 4
    if layer == "srwm":
        network["options"] = {"feature_map": "softmax"}
    settings = {**TRAINING[preset], **(OWN[column] if preset == "cpu" else {})}
    bptt_length = int(model.endswith(CUT))
    training = ActorCritic(
        bootstrap_time_limits=False, bptt_length=bptt_length, learning_rate=RATE, greedy=False, **settings
    )
    return Trial(task, options, "agent", network, training)


def _loses_by_cutting(layer: str) -> Claim:
    return Claim(
        f"{LAYERS[layer]} solves the T-maze better with gradients through its memory.",
        "",
        above(*places("t-maze", layer, f"{layer}{CUT}")),
    )


EXPERIMENT = Experiment(
    title="Agents with a memory: gradients over a rollout or over one time step",
    source="An experiment of ours; Ni et al. 2023 (T-maze), Morad et al. 2023 (POPGym)",
    display=Display("return"),
    models=MODELS,
    columns=LABELS,
    published={},
    presets={
        "smoke": Preset(("t-maze",), tuple(MODELS)),
        "cpu": Preset(
            tuple(COLUMNS),
            tuple(MODELS),
            seeds=3,
            skip=frozenset((model, "autoencode") for model in MODELS if model.endswith(CUT)),
        ),
    },
    trial=trial,
    claims=tuple(_loses_by_cutting(layer) for layer in LAYERS if layer != "lstm"),
    notes=(
        "Cut: gradients through the memory end after one step, as in the public code of the papers. Otherwise they "
        "reach the beginning of a rollout, as in their text.",
        "Returns without a memory: at most 0.5 in the T-maze, -0.5 for a guess in the other two environments.",
        "Fast weights have a convolution over four steps before them: without positions and without recurrence, an "
        "associative memory cannot identify the input of four steps ago.",
        "The rate is that of agents/rates, searched in RepeatPrevious with gradients through the memory.",
    ),
    sanity="This comparison is ours, without numbers of a paper.",
)
