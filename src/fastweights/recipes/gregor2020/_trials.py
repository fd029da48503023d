"""The trials of Gregor 2020: settings of the paper, and our choices where the paper states none."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastweights.experiments.experiment import Trial
from fastweights.training.settings.online_memory import OnlineMemory

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
"""Options of LSTMs as synapses, and of all LSTM-id, whose cells are bounded: see the second note."""

LSTMS = {"lstm-16": 16, "lstm-128": 128}
"""Units of the LSTM baselines."""

LENGTH: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 4, "evaluate_every": 2, "early_symbols": 20},
    "cpu": {"steps": 20_000, "evaluate_every": 5_000},
    "paper": {"steps": 100_000, "evaluate_every": 5_000},
}
TEXT: dict[str, dict[str, Any]] = {"smoke": {"characters": 2_100}}
SIZES: dict[str, dict[str, Any]] = {"smoke": {"neurons": 1, "width": 4, "backend": "reference"}}
RATES = {"mlp": 1e-3, "mlp-tanh": 1e-3, "lstm-id": 1e-3, "lstm-sigma": 3e-2, "lstm-128": 1e-3}
"""The best rates of gregor2020/rates, by kind of synapse or LSTM, if they are not 3e-3."""

REST: dict[str, Any] = {"neurons": 2, "width": 8}

NOTES = (
    "The paper's numbers are only in its figure, so that we test its sentences. A pair works if its loss is below half "
    "of log2(27) bits, the loss at chance level.",
    'The paper on the operator LSTM: "Standard LSTM update is used where the state (h or w) is split into hidden and '
    'cells of the LSTM" (Sec. 6). It does not state whether u_ij = w_ij h_j of Eq. 5 contains the cells of a synapse. '
    "Here it contains the hidden half only (cells: private), and a cell of LSTM-id is bounded by 3. With the other "
    "reading (cells: shown), the cells of a synapse grow by one per symbol and the gradients vanish: 10 pairs learned "
    "nothing at delay 10.",
    "The paper does not state the optimizer and the sizes. Ours: Adam with a maximum gradient norm of 1, at the rate "
    "of gregor2020/rates for the pair or for the same kind of synapses. One hidden layer has 2 neurons, embeddings "
    "have 4 numbers, and operators have 8 hidden units.",
    "Further choices of ours: the loss is that of snippets alone, and synapses do not change after a snippet. Every "
    "character that is not a letter is one symbol. P counts from the end of the last segment, so that a snippet is up "
    "to T + P = 20 steps back at delay 10.",
    "Training is one pass over the first 85 % of the book. The weights are the best on the next 5 %, the validation "
    "data. The test is one pass over the last tenth, from an initial state and with fixed rules. Early and final are "
    "losses of training, as in the paper: means over the first 200,000 symbols, and over the symbols since the last "
    "evaluation but one.",
    "The hidden state of an LSTM is set to 0 before a snippet. Its cells, which are its memory, stay.",
)


def trial(model: str, column: str, preset: str) -> Trial:
    """The trial of a network at a delay."""
    training = OnlineMemory(delay=int(column), learning_rate=rate(model), **LENGTH[preset])
    text = TEXT.get(preset, {})
    if model in LSTMS:
        return Trial("letters", text, "symbol-model", {"layer": "lstm", "units": LSTMS[model]}, training)
    return Trial("letters", text, "neuron-network", {**REST, **network(model), **SIZES.get(preset, {})}, training)


def network(model: str) -> dict[str, Any]:
    """Options of a network, with our reading of LSTMs if the network has one that it affects."""
    options = NETWORKS[model]
    differs = options["synapse"].startswith("lstm") or options["body"] == "lstm-id"
    return {**options, **(READING if differs else {})}


def rate(model: str) -> float:
    """The learning rate of a network: the best in gregor2020/rates for its kind of synapses."""
    return RATES.get(NETWORKS.get(model, {}).get("synapse", model), 3e-3)


def changed(base: Trial, changes: Mapping[str, dict[str, Any]], length: dict[str, Any]) -> Trial:
    """A trial with another length and with other settings, by part of the trial."""
    assert isinstance(base.training, OnlineMemory)
    return base._replace(
        training=replace(base.training, **{**length, **changes.get("training", {})}),
        task_options={**base.task_options, **changes.get("task_options", {})},
        model_options={**base.model_options, **changes.get("model_options", {})},
    )


def label(name: str) -> str:
    """Label of a network."""
    if name in LSTMS:
        return f"LSTM with {LSTMS[name]} units"
    options = NETWORKS[name]
    more = f", {options['neurons']} hidden neurons" if "neurons" in options else ""
    components = f", {options['components']} components" if "components" in options else ""
    return f"{OPERATORS[options['body']]} x {OPERATORS[options['synapse']]}{components}{more}"
