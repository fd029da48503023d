"""Comparison of memories: one small task per ability, with the same model, budget and search for all memories."""

from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, above, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.registry import names
from fastweights.training.settings.supervised import Supervised

COMPARED = {
    "softmax-attention": "Softmax attention",
    "linear-attention": "Linear attention",
    "power-retention": "Power retention",
    "delta-net": "DeltaNet",
    "negative": "DeltaNet, rates up to 2",
    "gated-delta": "Gated DeltaNet",
    "rwkv7": "RWKV-7",
    "mamba3": "Mamba-3",
    "titans": "Titans",
    "recursive-least-squares": "Recursive least squares",
    "mixture-of-memories": "Mixture of memories",
    "delta-rnn": "Delta RNN",
    "srwm": "SRWM",
    "lstm": "LSTM",
}
"""The memories of preset cpu, with their labels."""
EXCLUDED = ("delta", "neurons-and-synapses", "snail")
"""Layers that do not run: another name of `delta-net`, and two whose training steps take 30 times as long."""
OTHERS = {name: name for name in names("layers") if name not in (*COMPARED, *EXCLUDED)}
"""The memories of preset others."""
LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "negative": ("delta-net", {"rate_activation": "twice-sigmoid", "qk_norm": "l2", "feature_map": "identity"}),
}
RECALL: dict[str, Any] = {"vocab_size": 128, "pairs": 16, "length": 64}
FEW: dict[str, Any] = {"vocab_size": 64, "pairs": 10, "length": 64}
TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "parity": ("parity", "state-tracking", {"group": "parity", "length": 32}),
    "s3": ("S3", "state-tracking", {"group": "s3", "length": 32}),
    "recall-16": ("recall of 16", "associative-recall", RECALL),
    "recall-24": ("recall of 24", "associative-recall", {**RECALL, "pairs": 24, "length": 96}),
    "rewritten": ("rewritten", "associative-recall", {**FEW, "rewritten": 10}),
    "noise": ("distractors", "associative-recall", {**FEW, "distractors": 24}),
    "forgetting": ("forgetting", "selective-forgetting", {"vocab_size": 64, "pairs": 16, "markers": 3}),
    "copying": ("copying", "copying", {"symbols": 16, "copied": 24}),
    "regression": ("regression", "in-context-regression", {"dimension": 8, "length": 32}),
    "parity-long": ("parity, 4 times as long", "state-tracking", {"group": "parity", "length": 32}),
    "recall-long": ("recall, 4 times as long", "associative-recall", {**FEW, "length": 40}),
}
"""Label, task and options of every column."""
EVALUATION_LENGTHS = {"parity-long": 128, "recall-long": 160}
"""Lengths of the sequences that columns of length generalisation are tested with."""
SEARCHED = {"s3": ("parity", "s3", "parity-long")}
"""Columns for which the learning rate is searched, and the columns that take the rate that is best there."""
RECALLED = "recall-24"
"""The column whose best rate all other columns take."""
RATES: dict[str, dict[float, str]] = {
    "s3": {
        0.002: "backpropamine delta-product",
        0.004: (
            "adam atlas delta-lstm-v1 delta-net delta-rnn fast-weight-rnn gated gated-attention gdn2 hebbian hope "
            "kalman-linear-attention kda linear-recurrence longhorn lstm m2rnn mesa mixture-of-memories mlstm "
            "multi-level-fast-weight-rnn muon one-rate-srwm performer power-retention printed-delta-mlp "
            "recursive-least-squares residual-delta rwkv6 rwkv7 short-convolution sum titans transformer-xl "
            "ttt-mlp"
        ),
        0.016: "delta-delta-net product-key-memory recurrent-delta-net selective-scan softmax-attention",
    },
    "recall-24": {
        0.002: "irnn kalman-linear-attention rwkv4",
        0.004: (
            "comba delta-product delta-rnn-v1 efla gated-attention gated-delta hope linear-recurrence memora muon "
            "neural-turing-machine nlms power-retention product-key-memory slstm titans"
        ),
        0.016: (
            "backpropamine delta-delta-net delta-lstm delta-lstm-v1 delta-rnn fast-weight-rnn "
            "full-recurrent-delta-net gdn2 kda lstm negative one-rate-srwm performer printed-delta-mlp "
            "residual-delta rwkv7 selective-scan softmax-attention sr-delta-net"
        ),
        0.032: "associative-lstm delta-lstm-v2 delta-mlp hebbian linear-attention sum",
    },
}
"""Memories whose best learning rate in `abilities-rates` is not `USUAL_RATE`, by column and rate."""
USUAL_RATE = 8e-3
LONG: dict[str, Any] = {
    "steps": 2_000,
    "warmup_steps": 100,
    "decay": 500,
    "evaluate_every": 200,
    "patience": 5,
    "goal": 0.01,
}
TRAINING: dict[str, dict[str, Any]] = {"smoke": {"steps": 4, "evaluate_every": 2}, "cpu": LONG, "others": LONG}


def rate_of(model: str, column: str) -> float:
    """The learning rate of a memory in a column: the best one in the column for which it was searched."""
    searched = next((name for name, columns in SEARCHED.items() if column in columns), RECALLED)
    return next((rate for rate, models in RATES[searched].items() if model in models.split()), USUAL_RATE)


def trial(model: str, column: str, preset: str) -> Trial:
    """Two blocks of width 32 with short convolutions and 2 heads, for every memory and task.

    Heads of size 16 suffice for the delta rule. All keys of a block have 32 numbers, fewer than there are words, so
    that recall tells memories apart within a short sequence.
    """
    training = Supervised(batch_size=32, learning_rate=rate_of(model, column), max_grad_norm=1.0, **TRAINING[preset])
    layer, own = LAYERS.get(model, (model, {}))
    options = {
        "layer": layer,
        "d_model": 32,
        "num_layers": 2,
        "num_heads": 2,
        "d_ff": 64,
        "conv_size": 4,
        "options": own,
    }
    _, task, task_options = TASKS[column]
    longer = {"evaluation_length": EVALUATION_LENGTHS[column]} if column in EVALUATION_LENGTHS else {}
    evaluation = {"evaluation_size": 40 if preset == "smoke" else 400}
    return Trial(task, {**task_options, **longer, **evaluation}, "block-model", options, training)


EXPERIMENT = Experiment(
    title="Abilities of memories",
    source="Tasks after the papers that their pages name; models, sizes and the comparison are ours",
    display=Display("test accuracy, %", "percent"),
    models=COMPARED | OTHERS,
    columns={name: label for name, (label, *_) in TASKS.items()},
    published={},
    presets={
        "smoke": Preset(("rewritten",), ("delta-net", "lstm")),
        "cpu": Preset(tuple(TASKS), tuple(COMPARED), seeds=3),
        "others": Preset(tuple(TASKS), tuple(OTHERS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim(
            "The delta rule follows parity better with rates up to 2 than up to 1.",
            "",
            above(*places("parity", "negative", "delta-net")),
        ),
        Claim(
            "DeltaNet recalls rewritten keys better than linear attention.",
            "",
            above(*places("rewritten", "delta-net", "linear-attention")),
        ),
        Claim(
            "Gated DeltaNet forgets better than DeltaNet.", "", above(*places("forgetting", "gated-delta", "delta-net"))
        ),
        Claim(
            "Softmax attention recalls 24 pairs better than DeltaNet.",
            "",
            above(*places("recall-24", "softmax-attention", "delta-net")),
        ),
    ),
    notes=(
        "A comparison of ours: sizes and budget are the same for all, and no number is from a paper.",
        "Preset others has all other layers.",
        "Learning rates are the best ones of abilities-rates on validation data. Parity takes the rate of S3, "
        "and all others that of the recall of 24 pairs. A memory may do better with a rate per column.",
        "The state is that of one sequence at the end of its input. Softmax attention keeps a window of 256 steps.",
    ),
    sanity="This comparison is ours, without numbers of a paper.",
)
