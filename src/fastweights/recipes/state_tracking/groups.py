"""Running products in a group, which need a memory that changes its content."""

from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, above, below, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.training.settings.supervised import Supervised

MODELS = {
    "lstm": "LSTM",
    "delta-rnn": "Delta RNN",
    "recurrent-delta-net": "RDN",
    "m2rnn": "M2RNN",
    "srwm": "SRWM",
    "rwkv7": "RWKV-7",
    "kda": "KDA",
    "negative": "DeltaNet, rates up to 2",
    "delta-net": "DeltaNet",
    "linear-attention": "Linear attention",
}
COLUMNS = {"parity": "parity", "s3": "S3", "s5": "S5"}
LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "negative": ("delta-net", {"rate_activation": "twice-sigmoid", "qk_norm": "l2", "feature_map": "identity"}),
}
RATES = {"lstm": 5e-4, "recurrent-delta-net": 8e-3, "m2rnn": 4e-3, "delta-net": 1e-3}
"""The best rates of state-tracking/rates if they are not 2e-3. The LSTM solves the task at all rates."""
TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 4, "evaluate_every": 2},
    "cpu": {"steps": 3_000, "evaluate_every": 100, "patience": 10, "goal": 0.01},
}
TASK: dict[str, dict[str, Any]] = {
    "smoke": {"length": 8, "evaluation_size": 40},
    "cpu": {"length": 32, "evaluation_size": 500},
}


def trial(model: str, column: str, preset: str) -> Trial:
    """A model of one block of width 64."""
    rate = RATES.get(model, 2e-3)
    training = Supervised(batch_size=64, learning_rate=rate, max_grad_norm=1.0, **TRAINING[preset])
    layer, own = LAYERS.get(model, (model, {}))
    options = {"layer": layer, "d_model": 64, "num_layers": 1, "num_heads": 4, "d_ff": 128, "options": own}
    return Trial("state-tracking", {**TASK[preset], "group": column}, "block-model", options, training)


EXPERIMENT = Experiment(
    title="Running products of permutations",
    source="Task: Merrill, Petty and Sabharwal 2024; models and sizes are our choice",
    display=Display("test accuracy, %", "percent"),
    models=MODELS,
    columns=COLUMNS,
    published={},
    presets={"smoke": Preset(("parity",), tuple(MODELS)), "cpu": Preset(("parity", "s3"), tuple(MODELS), seeds=3)},
    trial=trial,
    claims=(
        Claim("The LSTM tracks parity over 32 steps (99 %).", "", above(("lstm", "parity"), 99.0)),
        Claim("Linear attention does not (under 90 %).", "", below(("linear-attention", "parity"), 90.0)),
        Claim(
            "The delta rule tracks parity better with rates up to 2 than up to 1.",
            "",
            above(*places("parity", "negative", "delta-net")),
        ),
    ),
    notes=("This experiment is ours; there are no published numbers.",),
    sanity="This comparison is ours, without numbers of a paper.",
)
