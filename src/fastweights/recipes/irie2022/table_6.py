"""ProcGen: one agent for six games, by game."""

from fastweights.experiments.claim import Claim, above, places
from fastweights.recipes.irie2022._procgen import one_for_all

EXPERIMENT = one_for_all(
    "ProcGen, easy: one agent for six games, by game",
    "Appendix C.2, Table 6",
    memory=False,
    published={
        "feed-forward": (16.4, 1.6),
        "lstm": (15.7, 1.6),
        "delta-net": (18.6, 1.7),
        "fake-srwm": (15.3, 1.9),
        "reset-srwm": (16.1, 2.2),
        "srwm": (20.0, 1.8),
    },
    claims=(
        Claim(
            "Models that reset the weight update after every fixed time span failed to leverage the SRWM mechanism.",
            "Sec. 4.3",
            above(*places("easy", "srwm", "reset-srwm")),
        ),
        Claim(
            "The performance gains achieved by the SRWM over the baselines are particularly large for Bigfish and "
            "Starpilot.",
            "Sec. 4.3",
            tuple(
                part
                for game in ("bigfish", "starpilot")
                for part in above(("srwm", game), *places(game, "feed-forward", "lstm", "fake-srwm"))
            ),
        ),
    ),
    by_game={
        "feed-forward": ((4.3, 2.3), (25.6, 1.1), (3.4, 0.4), (1.4, 0.3), (3.2, 0.3), (53.0, 1.7)),
        "lstm": ((3.2, 1.1), (24.8, 0.7), (3.6, 0.4), (1.6, 0.4), (2.9, 0.4), (48.3, 2.0)),
        "delta-net": ((7.8, 1.5), (24.5, 1.5), (3.3, 0.4), (1.7, 0.2), (3.3, 0.2), (53.9, 2.4)),
        "srwm": ((9.0, 2.0), (25.5, 1.0), (3.4, 0.4), (1.8, 0.5), (3.0, 0.2), (54.6, 2.4)),
        "fake-srwm": ((4.7, 2.4), (24.6, 1.2), (3.6, 0.4), (1.3, 0.3), (3.1, 0.5), (49.6, 2.1)),
        "reset-srwm": ((5.8, 1.3), (25.2, 1.4), (3.5, 0.3), (1.5, 0.3), (3.0, 0.2), (48.6, 1.9)),
    },
)
