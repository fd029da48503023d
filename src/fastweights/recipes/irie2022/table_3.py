"""ProcGen: one agent for six games."""

from fastweights.experiments.experiment import Claim
from fastweights.recipes.irie2022._procgen import WRITING_IS_BETTER, one_for_all

EXPERIMENT = one_for_all(
    "ProcGen, easy: one agent for six games",
    "Sec. 4.3, Table 3",
    memory=False,
    published={
        "feed-forward": (16.4, 1.6),
        "lstm": (15.7, 1.6),
        "fake-srwm": (15.3, 1.9),
        "delta-net": (18.6, 1.7),
        "srwm": (20.0, 1.8),
    },
    claims=(
        WRITING_IS_BETTER,
        Claim("The SRWM scores more than the DeltaNet.", lambda mean: mean("srwm", "easy") > mean("delta-net", "easy")),
        Claim("The DeltaNet scores more than the LSTM.", lambda mean: mean("delta-net", "easy") > mean("lstm", "easy")),
    ),
)
