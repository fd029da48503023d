"""Word models that read a text as one: what is carried from window to window, and how much of it."""

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
"""Steps that Transformer-XL remembers when it is tested, besides those of its training. The first has as many numbers
as the state of DeltaNet: 15 steps of 2 x 256 numbers a layer in the paper, 8 of 2 x 64 in preset cpu."""

SHORTER: dict[str, dict[str, int]] = {"paper": {"steps": 200_000, "warmup_steps": 1000}}
"""How much less Transformer-XL is trained."""

GATED = {"feature_map": "elu", "qk_norm": "sum"}
"""The keys of DeltaNet."""


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
    return one._replace(training=replace(training, memories=MEMORIES[preset], **SHORTER.get(preset, {})))


PAPERS = ("linear", "delta", "transformer-xl")
NO_WINDOWS = frozenset({("transformer-xl", "windows")})

EXPERIMENT = Experiment(
    title="Word models with the state carried over the whole text",
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
            "The Linear Transformer breaks down when its state is carried: its perplexity is above 260, of 29.4 for "
            "DeltaNet. Here: by a third at least.",
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
            "With a decay of its memory, a carried state is better than windows.",
            "",
            below(("gated-delta", "medium"), ("gated-delta", "windows")),
        ),
    ),
    notes=(
        *words.NOTES,
        *words.NOTES_OF_STREAMS,
        "The paper gives no number for the Linear Transformer, only that it is above 260.",
        "The column of windows is the model of Table 3 without positions, at the same training: the state alone "
        "differs. Gated DeltaNet is not in the paper. It shows what a decay of the memory changes.",
        "Transformer-XL remembers the window before; the paper's state of 6.29 M numbers is that of 384 steps. In "
        "detail it is tested with fewer steps, by the same weights, as in the paper. There words come 64 or 128 at "
        "a time, so that later ones of them look back up to twice as far; here every word looks back equally far, in "
        "training too. The first number of steps has a state of DeltaNet's size.",
    ),
    details={
        Detail("perplexity", str(n)): f"with {n} steps to look at" for memories in MEMORIES.values() for n in memories
    },
    published_details=table(
        tuple(Detail("perplexity", str(n)) for n in MEMORIES["paper"]), {"transformer-xl": (65.5, 30.1, 27.4)}
    ),
    courses=words.GROWTH,
    sanity=words.sanity("medium"),
)
