"""ProcGen: one agent for six games."""

from fastweights.experiments.claim import Claim, above, below, places
from fastweights.recipes.irie2022._procgen import ON_TRAINING_LEVELS, one_for_all

EXPERIMENT = one_for_all(
    "ProcGen, easy: one agent for six games",
    "Sec. 4.3, Table 3",
    memory=False,
    published={
        "feed-forward": ((22.5, 2.6), (16.4, 1.6)),
        "lstm": ((28.3, 1.4), (15.7, 1.6)),
        "fake-srwm": ((27.0, 1.8), (15.3, 1.9)),
        "delta-net": ((35.0, 1.6), (18.6, 1.7)),
        "srwm": ((34.6, 1.8), (20.0, 1.8)),
    },
    claims=(
        Claim(
            "The LSTM layer does not provide any improvements regarding the test performance: by more than two points.",
            "Sec. 4.3",
            below(*places("easy", "lstm", "feed-forward"), by=-2.0),
        ),
        Claim(
            "Some improvements by the LSTM layer are obtained on the train set.",
            "Sec. 4.3",
            above(*places(ON_TRAINING_LEVELS, "lstm", "feed-forward")),
        ),
        Claim(
            "DeltaNet and SRWM clearly outperform the feed-forward and LSTM baselines, as well as the Fake SR model.",
            "Sec. 4.3",
            tuple(
                part
                for model in ("delta-net", "srwm")
                for part in above((model, "easy"), *places("easy", "feed-forward", "lstm", "fake-srwm"))
            ),
        ),
        Claim(
            "The SRWM achieves a slightly better test score than the DeltaNet.",
            "Sec. 4.3",
            above(*places("easy", "srwm", "delta-net")),
        ),
    ),
)
