"""Word-level language models over every recurrent fast weight programmer."""

from typing import Any

from fastweights.experiments.claim import Above, Claim, above, below, places
from fastweights.experiments.experiment import Experiment, Preset, Trial, table
from fastweights.recipes import _words as words

MODELS = {
    "transformer": "Transformer",
    "linear": "Linear Transformer",
    "delta-net": "DeltaNet",
    "delta-mlp": "Delta MLP",
    "delta-delta-net": "Delta Delta Net",
    "delta-rnn": "Delta RNN",
    "delta-lstm": "Delta LSTM",
    "recurrent-delta-net": "RDN",
    "gated-delta": "Gated DeltaNet",
}
COLUMNS = {"truncated": "truncated context", "full": "full context", "windows": "windows, wired as full context"}
FROM_2021 = ("transformer", "linear")
"""Models with exactly the numbers of Schlag et al. 2021, Table 2. They have the wiring of that paper."""

FULL = ("delta-net", "delta-rnn", "recurrent-delta-net")
GATED = {"feature_map": "elu", "qk_norm": "sum"}
"""Options that give Gated DeltaNet the keys of DeltaNet."""

UNSCALED = ("delta-mlp", "delta-delta-net")
"""Models whose reads the authors' code does not divide by sqrt(d)."""


def trial(model: str, column: str, preset: str) -> Trial:
    """A word model of the table.

    With truncated context, skip connections start after the LayerNorm of every layer. Models of full context and of
    Schlag et al. 2021 have LayerNorm after every layer.
    """
    if column != "truncated":
        options = {**(GATED if model == "gated-delta" else {}), **words.scaled(preset)}
        return words.without_positions(preset, model, options, "small", carry_state=column == "full")
    one = truncated(model, preset)
    return one._replace(task_options={**one.task_options, **words.EVALUATED.get(preset, {})})


def truncated(model: str, preset: str) -> Trial:
    """A model of truncated context, evaluated on the same text as the other papers' word-level language models."""
    wiring: dict[str, Any] = {"norm": "post" if model in FROM_2021 else "normed-skip"}
    if model == "transformer":
        return words.trial(preset, "softmax-attention", words.attention(preset), **wiring)
    layer = "linear-attention" if model == "linear" else model
    options = {} if model in UNSCALED else words.scaled(preset)
    blocks = words.trial(preset, layer, options, **wiring)
    if model != "delta-mlp":
        return blocks
    # For the same number of parameters as the others, a memory with two layers and half as many blocks.
    more = {"options": {"num_layers": 2, "idle": True}, "num_layers": max(blocks.model_options["num_layers"] // 2, 1)}
    return blocks._replace(model_options={**blocks.model_options, **more})


PAPERS = tuple(model for model in MODELS if model != "gated-delta")
NOT_FULL = frozenset((m, "full") for m in PAPERS if m not in FULL)
NOT_WINDOWS = frozenset((m, "windows") for m in PAPERS if m not in FULL)
AUGMENTED = ("delta-delta-net", "delta-rnn", "delta-lstm", "recurrent-delta-net")

EXPERIMENT = Experiment(
    title="Word-level language models: recurrent fast weight programmers",
    source="Irie, Schlag, Csordas and Schmidhuber 2021, Sec. 4.1, Table 1",
    display=words.DISPLAY,
    models=MODELS,
    columns=COLUMNS,
    published=table(
        ("truncated", "full"),
        {
            "transformer": (34.1, None),
            "linear": (38.3, None),
            "delta-net": (35.2, None),
            "delta-mlp": (36.8, None),
            "delta-delta-net": (35.2, None),
            "delta-rnn": (35.0, 32.8),
            "delta-lstm": (33.8, None),
            "recurrent-delta-net": (35.2, 33.6),
        },
    ),
    presets={
        "smoke": Preset(("truncated", "full"), PAPERS, skip=NOT_FULL),
        "cpu": Preset(
            tuple(COLUMNS), tuple(MODELS), seeds=3, skip=NOT_FULL | NOT_WINDOWS | {("gated-delta", "truncated")}
        ),
        "paper": Preset(("truncated", "full"), PAPERS, skip=NOT_FULL),
    },
    trial=trial,
    claims=(
        Claim(
            "The Delta MLP performs worse than the baseline DeltaNet.",
            "Sec. 4.1",
            above(*places("truncated", "delta-mlp", "delta-net")),
        ),
        Claim(
            "In all other models, the performance never degrades with the proposed architectural augmentation: "
            "perplexity is not higher by more than a hundredth.",
            "Sec. 4.1",
            above(("delta-net", "truncated"), *places("truncated", *AUGMENTED), times=1 / 1.01),
        ),
        Claim(
            "Among the models presented here, the Delta LSTM exhibits the best performance.",
            "Sec. 4.1",
            below(
                ("delta-lstm", "truncated"),
                *places("truncated", "delta-mlp", *(model for model in AUGMENTED if model != "delta-lstm")),
            ),
        ),
        Claim(
            "The Delta RNN and the RDN without context truncation outperform the regular Transformer with a limited "
            "context.",
            "Sec. 4.1",
            above(("transformer", "truncated"), *places("full", "delta-rnn", "recurrent-delta-net")),
        ),
        Claim(
            "The full context is better than the truncated one.",
            "Table 1",
            tuple(Above((model, "truncated"), (model, "full")) for model in ("delta-rnn", "recurrent-delta-net")),
        ),
        Claim(
            "With the same wiring and positions, a carried state is better than windows.",
            "",
            tuple(Above((model, "windows"), (model, "full")) for model in FULL),
        ),
        Claim(
            "Every model with the delta rule, except the Delta MLP, is better than the Linear Transformer.",
            "Table 1",
            above(("linear", "truncated"), *places("truncated", "delta-net", *AUGMENTED)),
        ),
    ),
    notes=(
        *words.NOTES,
        *words.NOTES_OF_STREAMS,
        "The numbers of the Transformer and of the Linear Transformer are those of Schlag et al. 2021, Table 2, and "
        "these two have its wiring: LayerNorm after every layer. The others of truncated context have it before.",
        "The truncated context is 256 words in the paper and 64 in preset cpu. Models of full context have no "
        "positions, and LayerNorm after every layer. So wiring, positions and the carried state all differ between "
        "these two columns. Our column of windows has the wiring of full context without the carried state.",
        "Gated DeltaNet is not in the paper. It shows the effect of a decay of the memory.",
        "The Delta MLP has half as many blocks of twice the depth, which gives its 44.3 M parameters; the paper does "
        "not state the depth.",
    ),
    curve_figures=words.GROWTH,
    sanity=words.sanity("truncated", "full"),
)
