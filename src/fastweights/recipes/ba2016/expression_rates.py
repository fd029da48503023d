"""The learning rate of every network of Table 3 for expressions, chosen on validation data."""

from fastweights.recipes.ba2016._face_rates import face_rates

EXPERIMENT = face_rates(
    "expression",
    ("0.00001", "0.00003", "0.0001", "0.0003", "0.001", "0.003", "0.01"),
    skip=frozenset(
        [(model, "0.00001") for model in ("lstm", "glimpse-network", "multi-level-fast-weight-rnn")]
        + [(model, "0.00003") for model in ("glimpse-network", "multi-level-fast-weight-rnn")]
        + [(model, "0.01") for model in ("irnn", "lstm")]
    ),
)
"""With fewer updates, the IRNN and the LSTM had learned nothing at 0.01; only the IRNN was best at 3e-5."""
