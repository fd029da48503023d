"""Word models that read a text as one: what is carried from window to window, and how much of it."""

from dataclasses import replace
from typing import Any

from fastweights.core.measurements import Detail
from fastweights.experiments.claim import Claim, below
from fastweights.experiments.experiment import Experiment, Trial, table
from fastweights.recipes import _words as words

MODELS = {"linear": "Linear Transformer", "delta": "DeltaNet", "transformer-xl": "Transformer-XL"}
COLUMNS = {"medium": "full context"}
MEMORIES = {"paper": (15, 64, 128), "cpu": (2, 11, 21), "smoke": (2,)}
"""Steps that Transformer-XL remembers when it is tested, besides those of its training: parts alike of its window."""

SHORTER: dict[str, dict[str, int]] = {"paper": {"steps": 200_000, "warmup": 1000}}
"""How much less Transformer-XL is trained."""


def trial(model: str, column: str, preset: str) -> Trial:
    """With the state carried, and without positions of a window."""
    memory = {"memory": words.SIZES[preset]["medium"].training["window"]}
    layers = {
        "linear": ("linear-attention", words.scaled(preset, column)),
        "delta": ("delta-net", words.scaled(preset, column)),
        "transformer-xl": ("transformer-xl", memory),
    }
    one = words.trial(preset, *layers[model], column, carry=True, positions=False)
    if model != "transformer-xl":
        return one
    training: Any = one.training
    return one._replace(training=replace(training, memories=MEMORIES[preset], **SHORTER.get(preset, {})))


EXPERIMENT = Experiment(
    title="Word models with the state carried over the whole text",
    source="Schlag, Irie and Schmidhuber 2021, Sec. 6.3, Table 4",
    display=words.DISPLAY,
    models=MODELS,
    columns=COLUMNS,
    published=table(("medium",), {"linear": (None,), "delta": (29.4,), "transformer-xl": (25.5,)}),
    presets=words.presets(MODELS, COLUMNS),
    trial=trial,
    claims=(
        Claim(
            "The Linear Transformer breaks down when its state is carried: its perplexity is above 260, of 29.4 for "
            "DeltaNet. Here: by a third at least.",
            "Table 4",
            below(("delta", "medium"), ("linear", "medium"), times=4 / 3),
        ),
        Claim(
            "With a large state, Transformer-XL is ahead of DeltaNet.",
            "Table 4",
            below(("transformer-xl", "medium"), ("delta", "medium")),
        ),
    ),
    notes=(
        *words.NOTES,
        "The paper says of the Linear Transformer that it breaks down, above 260.",
        "Transformer-XL remembers the window before; the paper's state of 6.29 M numbers is that of 384 steps. In "
        "detail it is tested with less to look at, by the same weights, as in the paper. There words come 64 or 128 at "
        "a time, so that later ones of them look back up to twice as far; here every word has as many.",
    ),
    details={
        Detail("perplexity", str(n)): f"with {n} steps to look at" for memories in MEMORIES.values() for n in memories
    },
    published_details=table(
        tuple(Detail("perplexity", str(n)) for n in MEMORIES["paper"]), {"transformer-xl": (65.5, 30.1, 27.4)}
    ),
)
