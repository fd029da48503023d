"""Word-level language models with full context: kind and size of the state that is carried between windows."""

from dataclasses import replace
from typing import Any

from fastweights.core.measurements import Detail
from fastweights.experiments.claim import Claim, below
from fastweights.experiments.experiment import Experiment, Preset, Trial, table
from fastweights.recipes import _words as words

MODELS = {
    "linear": "Linear Transformer",
    "delta": "DeltaNet",
    "transformer-xl": "Transformer-XL",
    "gated-delta": "Gated DeltaNet",
}
COLUMNS = {"medium": "full context", "windows": "windows"}
MEMORIES = {"paper": (15, 64, 128), "cpu": (8, 11, 21), "smoke": (2,)}
"""Lengths of the memory of Transformer-XL in tests, besides that of training. The first has as many numbers as the
state of DeltaNet: 15 time steps of 2 x 256 numbers per layer in the paper, 8 of 2 x 64 in preset cpu."""

SHORTER: dict[str, dict[str, int]] = {"paper": {"steps": 200_000, "warmup_steps": 1000}}
"""The shorter training of Transformer-XL."""

GATED = {"feature_map": "elu", "qk_norm": "sum"}
"""Options that give Gated DeltaNet the keys of DeltaNet."""


def trial(model: str, column: str, preset: str) -> Trial:
    """A trial without positions. The state is carried, or every window starts from zeros."""
    memory = {"mem_len": words.SIZES[preset]["medium"].training["window"]}
    scaled = words.scaled(preset, "medium")
    layers = {
        "linear": ("linear-attention", scaled),
        "delta": ("delta-net", scaled),
        "transformer-xl": ("transformer-xl", memory),
        "gated-delta": ("gated-delta", {**GATED, **scaled}),
    }
    one = words.without_positions(preset, *layers[model], "medium", carry_state=column == "medium")
    if model != "transformer-xl":
        return one
    training: Any = one.training
    return one._replace(training=replace(training, test_mem_lens=MEMORIES[preset], **SHORTER.get(preset, {})))


PAPERS = ("linear", "delta", "transformer-xl")
NO_WINDOWS = frozenset({("transformer-xl", "windows")})

EXPERIMENT = Experiment(
    title="Word-level language models with the state carried over the whole text",
    source="Schlag, Irie and Schmidhuber 2021, Sec. 6.3, Table 4",
    display=words.DISPLAY,
    models=MODELS,
    columns=COLUMNS,
    published=table(
        ("medium", "windows"), {"linear": (None, None), "delta": (29.4, 31.1), "transformer-xl": (25.5, None)}
    ),
    presets={
        "smoke": Preset(("medium",), tuple(MODELS)),
        "cpu": Preset(tuple(COLUMNS), tuple(MODELS), seeds=3, skip=NO_WINDOWS),
        "paper": Preset(("medium",), PAPERS),
    },
    trial=trial,
    claims=(
        Claim(
            "The Linear Transformer breaks down with a carried state: its perplexity is above 260, that of DeltaNet "
            "29.4. Here: at least a third higher.",
            "Table 4",
            below(("delta", "medium"), ("linear", "medium"), times=4 / 3),
        ),
        Claim(
            "DeltaNet without truncating context yields a slight improvement over the best model with a limited "
            "context window.",
            "Sec. 6.3",
            below(("delta", "medium"), ("delta", "windows")),
        ),
        Claim(
            "With a large state, Transformer-XL is ahead of DeltaNet.",
            "Table 4",
            below(("transformer-xl", "medium"), ("delta", "medium")),
        ),
        Claim(
            "With a state of the same size, Transformer-XL is behind DeltaNet.",
            "Table 4",
            tuple(
                part
                for steps in (MEMORIES["cpu"][0], MEMORIES["paper"][0])
                for part in below(("delta", "medium"), ("transformer-xl", Detail("perplexity", str(steps))))
            ),
            at_least=1,
        ),
        Claim(
            "With a decay of the memory, a carried state is better than windows.",
            "",
            below(("gated-delta", "medium"), ("gated-delta", "windows")),
        ),
    ),
    notes=(
        *words.NOTES,
        *words.NOTES_OF_STREAMS,
        "The paper gives no number for the Linear Transformer, only that it is above 260.",
        "The column of windows is the model of Table 3 without positions, with the same training: only the state "
        "differs. Gated DeltaNet is not in the paper. It shows the effect of a decay of the memory.",
        "The memory of Transformer-XL is the previous window; the paper's state of 6.29 M numbers has 384 steps. The "
        "rows under Details test the same weights with fewer steps, as in the paper. The paper processes 64 or 128 "
        "words at once, so that the context of later words is up to twice as long; here all words have the same "
        "context, in training as well. The first number of steps has a state of DeltaNet's size.",
    ),
    details={
        Detail("perplexity", str(n)): f"with a memory of {n} steps" for memories in MEMORIES.values() for n in memories
    },
    published_details=table(
        tuple(Detail("perplexity", str(n)) for n in MEMORIES["paper"]), {"transformer-xl": (65.5, 30.1, 27.4)}
    ),
    curve_figures=words.GROWTH,
    sanity=words.sanity("medium"),
)
