"""The learning rate of every network of Table 3 for poses, chosen on validation data."""

from fastweights.recipes.ba2016._face_rates import face_rates

EXPERIMENT = face_rates(
    "pose",
    ("0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03"),
    skip=frozenset([("irnn", "0.03")]),  # at 0.01 it has learned nothing
)
