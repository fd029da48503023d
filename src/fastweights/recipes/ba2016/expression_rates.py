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
"""With 2,000 updates, the IRNN and the LSTM learned nothing at 0.01, and the other two were best at 1e-3. With 6,000
updates only the IRNN is best at 3e-5, so that only its search has a smaller rate."""
