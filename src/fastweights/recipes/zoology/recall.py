"""Multi-query associative recall: values of several keys, recalled later in the same sequence."""

from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, above, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.training.settings.supervised import Supervised

MODELS = {
    "softmax-attention": "Softmax attention",
    "delta-net": "DeltaNet",
    "gated-delta": "Gated DeltaNet",
    "kda": "KDA",
    "rwkv7": "RWKV-7",
    "m2rnn": "M2RNN",
    "srwm": "SRWM",
    "linear-attention": "Linear attention",
    "lstm": "LSTM",
}
COLUMNS = {"4": "4 pairs", "8": "8 pairs", "16": "16 pairs"}
RATES = {"srwm": 8e-3}
"""The best rates of zoology/rates if they are not 4e-3. The other models that solve the task do so at all rates."""
TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 4, "evaluate_every": 2},
    "cpu": {"steps": 3_000, "evaluate_every": 100, "patience": 10, "goal": 0.01},
}
TASK: dict[str, dict[str, Any]] = {
    "smoke": {"vocab_size": 64, "length": 64, "evaluation_size": 40},
    "cpu": {"vocab_size": 64, "length": 64, "evaluation_size": 500},
}


def trial(model: str, column: str, preset: str) -> Trial:
    """A model of two blocks of width 64 with short convolutions, as in recent language models."""
    training = Supervised(batch_size=64, learning_rate=RATES.get(model, 4e-3), max_grad_norm=1.0, **TRAINING[preset])
    options = {"layer": model, "d_model": 64, "num_layers": 2, "num_heads": 2, "d_ff": 128, "conv_size": 4}
    task = {**TASK[preset], "pairs": int(column)}
    return Trial("associative-recall", task, "block-model", options, training)


EXPERIMENT = Experiment(
    title="Multi-query associative recall",
    source="Task: Arora et al. 2024, Sec. 4.1; models and sizes are our choice",
    display=Display("test accuracy, %", "percent"),
    models=MODELS,
    columns=COLUMNS,
    published={},
    presets={"smoke": Preset(("4",), tuple(MODELS)), "cpu": Preset(("8", "16"), tuple(MODELS), seeds=3)},
    trial=trial,
    claims=(
        Claim("Softmax attention recalls 16 pairs (99 %).", "", above(("softmax-attention", "16"), 99.0)),
        Claim("DeltaNet recalls 16 pairs (99 %).", "", above(("delta-net", "16"), 99.0)),
        Claim("DeltaNet recalls 16 pairs better than the LSTM.", "", above(*places("16", "delta-net", "lstm"))),
    ),
    notes=("This experiment is ours. The paper's numbers are for other sizes, and not repeated here.",),
    sanity="This comparison is ours, without numbers of a paper.",
)
