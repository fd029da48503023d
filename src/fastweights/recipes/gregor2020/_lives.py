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
READING = {"cells": "private"}
"""Of LSTMs as synapses, and of LSTM-id anywhere, whose cells are bounded: see the second note."""

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
    "The paper's numbers are only in its figure, so that its sentences are checked. A pair works where its loss is "
    "below half of log2(27) bits, the loss of a model that knows nothing.",
    'The paper says of an LSTM: "Standard LSTM update is used where the state (h or w) is split into hidden and cells '
    'of the LSTM" (Sec. 6). It does not say whether u_ij = w_ij h_j of Eq. 5 contains the cells of a synapse. Here it '
    "contains the hidden half only (cells: private), and a cell of LSTM-id stays within 3 of 0. With the other reading "
    "(cells: shown), the cells of a synapse grow by one per symbol and the gradients vanish: 10 pairs learned nothing "
    "at delay 10.",
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
    return Trial("letters", text, "neuron-network", {**REST, **network(model), **SIZES.get(preset, {})}, training)


def network(model: str) -> dict[str, Any]:
    """Options of a network, with the reading of its LSTMs where it makes a difference."""
    options = NETWORKS[model]
    differs = options["synapse"].startswith("lstm") or options["body"] == "lstm-id"
    return {**options, **(READING if differs else {})}


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
