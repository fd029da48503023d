"""Associative retrieval: test error of small recurrent networks, with and without fast weights."""

from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, Until, above, below, places
from fastweights.experiments.experiment import Experiment, Preset, Sanity, Trial, table
from fastweights.training.settings.supervised import Supervised

MODELS = {"irnn": "IRNN", "lstm": "LSTM", "associative-lstm": "A-LSTM", "fast-weight-rnn": "Fast weights"}
FAST, LSTMS = "fast-weight-rnn", ("lstm", "associative-lstm")
UNITS = ("20", "50", "100")
RATES = {"irnn": 1e-3, "lstm": 1e-3, "associative-lstm": 1e-3, "fast-weight-rnn": 1e-4}
"""Adam's learning rates, the best on validation data with 20 units in `ba2016/rates`."""

OWN_RATES: dict[tuple[str, str], float] = {}
"""The best rates of `ba2016/large-rates`, by network and units, if they are not those with 20 units."""

LONGER: dict[tuple[str, str, str], dict[str, Any]] = {("cpu", "irnn", "100"): {"steps": 300_000}}
"""The IRNN with 100 units still improves after 100,000 training steps. The paper's network solves the task."""

TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 20, "evaluate_every": 10},
    "cpu": {"steps": 100_000, "evaluate_every": 1_000, "patience": 15, "goal": 1e-3},
    "paper": {"steps": 750_000, "evaluate_every": 5_000},
}
SIZES: dict[str, dict[str, Any]] = {"smoke": {"sizes": (2_000, 200, 200)}}
EASY: dict[str, Any] = {
    "task": {"pairs": 2, "sizes": (40_000, 2_000, 2_000)},
    "training": {"steps": 10_000, "patience": 0},
}
"""The changes of the sanity check: two pairs in place of four."""


def trial(model: str, column: str, preset: str) -> Trial:
    """A network with R units, trained on batches of 128 with a maximum gradient norm of 5."""
    length = {**TRAINING[preset], **LONGER.get((preset, model, column), {})}
    rate = OWN_RATES.get((model, column), RATES[model])
    training = Supervised(batch_size=128, learning_rate=rate, max_grad_norm=5.0, **length)
    options = {"layer": model, "units": int(column), "embedding": 50, "projection": 100, "hidden": 100}
    return Trial("associative-retrieval", SIZES.get(preset, {}), "recurrent-model", options, training)


def _at_ten(model: str, units: str) -> Until:
    """Training steps until validation error is at most 10 %."""
    return Until(model, units, 10.0)


EXPERIMENT = Experiment(
    title="Associative retrieval with R recurrent units",
    source="Ba, Hinton, Mnih, Leibo and Ionescu 2016, Sec. 4.1, Table 1",
    display=Display("test error, %", "error"),
    models=MODELS,
    columns={units: f"R = {units}" for units in UNITS},
    published=table(
        UNITS,
        {
            "irnn": (62.11, 60.23, 0.34),
            "lstm": (60.81, 1.85, 0.0),
            "associative-lstm": (60.13, 1.62, 0.0),
            "fast-weight-rnn": (1.81, 0.0, 0.0),
        },
    ),
    presets={
        "smoke": Preset(("20",), tuple(MODELS)),
        "cpu": Preset(UNITS, tuple(MODELS), seeds=3),
        "paper": Preset(UNITS, tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim(
            "When the number of recurrent units is small, the fast associative memory significantly outperforms the "
            "LSTMs with the same number of recurrent units.",
            "Sec. 4.1",
            below((FAST, "20"), *places("20", *LSTMS)),
        ),
        Claim(
            "The model with fast weights also converges faster than the LSTM models.",
            "Sec. 4.1",
            tuple(part for r in ("20", "50") for part in below(_at_ten(FAST, r), *(_at_ten(m, r) for m in LSTMS))),
        ),
        Claim("With 100 units every network has an error below 1 %.", "Table 1", above(1.0, *places("100", *MODELS))),
        Claim("With 20 units fast weights have an error below 5 % (paper: 1.8 %).", "", below((FAST, "20"), 5.0)),
    ),
    notes=(
        "The paper does not state the number of pairs, the learning rate and the number of training steps. The 4 "
        "pairs, as in its examples, and the maximum gradient norm of 5 are our choice. The learning rates are the best "
        "on validation data: with 20 units those of ba2016/rates, with 50 and 100 units those of ba2016/large-rates if "
        "they differ. The axis of the paper's figure ends near 750,000 training steps, the length of preset paper.",
        "A network that knows the digits but not their letters, and answers the most frequent digit, has an error of "
        "61.65 %. The paper's other networks with 20 units end there, and all networks stay there for a while.",
        "Preset cpu stops at a validation loss of 0.001, after 15,000 training steps without an improvement, or after "
        "100,000 training steps.",
        "One inner step (S = 1), as in all re-implementations; the paper does not state S.",
    ),
    sanity=Sanity(columns=("20",), bound=25.0, **EASY),
)
