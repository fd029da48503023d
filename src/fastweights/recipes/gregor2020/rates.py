"""The learning rate of networks of Figure 1 at delay 80, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.gregor2020._trials import LSTMS, label, trial

PAIRS = (
    *("lstm+gated", "gated+gated", "mlp+mlp", "lstm+mlp-tanh"),
    *("lstm+lstm", "lstm+lstm-sigma", "lstm+lstm-id"),
)
"""Pairs with every kind of synapse."""
LARGEST = ("0.03", "0.1")
"""Rates for LSTM-sigma alone, whose best rate would be at the edge of the grid without them."""

EXPERIMENT = rate_search(
    "Learning rates for learning to remember, at delay 80",
    "gregor2020/figure-1",
    Display("validation bits per past symbol", data="validation"),
    {name: label(name) for name in (*PAIRS, *LSTMS)},
    lambda model, preset: trial(model, "80", preset),
    rates=("0.0003", "0.001", "0.003", "0.01", *LARGEST),
    seeds=2,
    skip=frozenset((name, rate) for name in (*PAIRS, *LSTMS) for rate in LARGEST if name != "lstm+lstm-sigma"),
)
