"""The lives of Gregor 2020 as trials: what the paper says, and what we chose where it does not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastweights.experiments.experiment import Trial
from fastweights.training.settings.remembering import Remembering

OPERATORS = {
    "mlp": "MLP",
    "mlp-tanh": "MLP-tanh",
    "lstm": "LSTM",
    "lstm-sigma": "LSTM-sigma",
    "lstm-id": "LSTM-id",
    "gated": "GATED",
}
GRID = {f"{body}+{synapse}": {"body": body, "synapse": synapse} for body in OPERATORS for synapse in OPERATORS}
"""Networks by the operators of bodies and synapses, with 6 components."""

LARGE = {f"{name}-14": {**GRID[name], "components": 14} for name in ("lstm+gated", "gated+gated")}
MORE = {f"lstm+gated-{n}-neurons": {**GRID["lstm+gated"], "neurons": n} for n in (8, 32)}
NETWORKS: dict[str, dict[str, Any]] = {**GRID, **LARGE, **MORE}
LSTMS = {"lstm-16": 16, "lstm-128": 128}
"""Units."""

LENGTH: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 4, "evaluate_every": 2, "early": 20},
    "cpu": {"steps": 20_000, "evaluate_every": 5_000},
    "paper": {"steps": 100_000, "evaluate_every": 5_000},
}
TEXT: dict[str, dict[str, Any]] = {"smoke": {"characters": 2_100}}
SIZES: dict[str, dict[str, Any]] = {"smoke": {"neurons": 1, "width": 4, "backend": "reference"}}
RATES = {"mlp": 1e-3, "mlp-tanh": 1e-3, "lstm-128": 1e-3}
"""Of pairs with such synapses, and of an LSTM, that want another than 3e-3: see gregor2020/rates."""

REST: dict[str, Any] = {"neurons": 2, "width": 8}

NOTES = (
    "The paper's numbers are only in its figure: what is checked are its sentences. A pair is said to work where it "
    "is nearer to the best pair than to knowing nothing, log2(27) bits.",
    "Not stated, and ours: Adam with a clip of 1, at the rate that gregor2020/rates found for it, or for the pair with "
    "the same kind of synapses; one hidden layer of 2 neurons, embeddings of 4, operators with 8 hidden units, a "
    "loss of snippets alone, snippets whose changes of synapses are forgotten with them, runs of non-letters unmerged, "
    "and P counted from behind the last segment: up to T + P = 20 steps back at delay 10.",
    "The life reads the first 85 % of the book. Weights are those that remember best in the twentieth after it; the "
    "last tenth is read once, from a fresh start, and no rule changes there. Early and final are losses of the life "
    "itself, as in the paper: the mean of the first 200,000 symbols, and of those since the last evaluation but one.",
    "An LSTM has its hidden state set to 0 in front of a snippet and keeps its cells, which are its memory.",
)


def trial(model: str, column: str, preset: str) -> Trial:
    """A network by its name, at a delay."""
    training = Remembering(delay=int(column), learning_rate=rate(model), **LENGTH[preset])
    text = TEXT.get(preset, {})
    if model in LSTMS:
        return Trial("letters", text, "plain-reader", {"layer": "lstm", "units": LSTMS[model]}, training)
    return Trial("letters", text, "neuron-network", {**REST, **NETWORKS[model], **SIZES.get(preset, {})}, training)


def rate(model: str) -> float:
    """What was found for a network, or for a pair with the same kind of synapses."""
    return RATES.get(NETWORKS.get(model, {}).get("synapse", model), 3e-3)


def changed(base: Trial, changes: Mapping[str, dict[str, Any]], length: dict[str, Any]) -> Trial:
    """A life of another length and with other settings, by the part of the trial that these are of."""
    assert isinstance(base.training, Remembering)
    return base._replace(
        training=replace(base.training, **{**length, **changes.get("training", {})}),
        task_options={**base.task_options, **changes.get("task_options", {})},
        model_options={**base.model_options, **changes.get("model_options", {})},
    )


def label(name: str) -> str:
    """The row of a network."""
    if name in LSTMS:
        return f"LSTM with {LSTMS[name]} units"
    options = NETWORKS[name]
    more = f", {options['neurons']} hidden neurons" if "neurons" in options else ""
    components = f", {options['components']} components" if "components" in options else ""
    return f"{OPERATORS[options['body']]} x {OPERATORS[options['synapse']]}{components}{more}"
