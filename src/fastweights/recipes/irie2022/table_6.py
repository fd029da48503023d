"""ProcGen: one agent for six games, by game."""

from fastweights.experiments.claim import Claim, above, places
from fastweights.recipes.irie2022._procgen import one_for_all

EXPERIMENT = one_for_all(
    "ProcGen, easy: one agent for six games, by game",
    "Appendix C.2, Table 6",
    memory=False,
    published={
        "feed-forward": ((22.5, 2.6), (16.4, 1.6)),
        "lstm": ((28.3, 1.4), (15.7, 1.6)),
        "delta-net": ((35.0, 1.6), (18.6, 1.7)),
        "fake-srwm": ((27.0, 1.8), (15.3, 1.9)),
        "reset-srwm": ((28.5, 1.2), (16.1, 2.2)),
        "srwm": ((34.6, 1.8), (20.0, 1.8)),
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
        "feed-forward": (
            *((8.3, 3.9), (4.3, 2.3)),
            *((29.2, 0.2), (25.6, 1.1)),
            *((3.3, 0.2), (3.4, 0.4)),
            *((1.9, 0.3), (1.4, 0.3)),
            *((3.2, 0.2), (3.2, 0.3)),
            *((57.6, 0.9), (53.0, 1.7)),
        ),
        "lstm": (
            *((6.5, 2.0), (3.2, 1.1)),
            *((27.8, 0.5), (24.8, 0.7)),
            *((3.3, 0.2), (3.6, 0.4)),
            *((3.1, 0.7), (1.6, 0.4)),
            *((3.2, 0.4), (2.9, 0.4)),
            *((56.0, 1.5), (48.3, 2.0)),
        ),
        "delta-net": (
            *((19.6, 4.0), (7.8, 1.5)),
            *((28.8, 0.9), (24.5, 1.5)),
            *((3.5, 0.4), (3.3, 0.4)),
            *((3.8, 0.2), (1.7, 0.2)),
            *((3.3, 0.2), (3.3, 0.2)),
            *((60.3, 0.4), (53.9, 2.4)),
        ),
        "srwm": (
            *((20.1, 2.4), (9.0, 2.0)),
            *((28.7, 0.2), (25.5, 1.0)),
            *((3.5, 0.2), (3.4, 0.4)),
            *((3.6, 0.5), (1.8, 0.5)),
            *((3.1, 0.0), (3.0, 0.2)),
            *((61.3, 2.0), (54.6, 2.4)),
        ),
        "fake-srwm": (
            *((11.6, 5.7), (4.7, 2.4)),
            *((27.8, 1.3), (24.6, 1.2)),
            *((3.3, 0.3), (3.6, 0.4)),
            *((3.2, 0.2), (1.3, 0.3)),
            *((3.1, 0.4), (3.1, 0.5)),
            *((55.0, 1.3), (49.6, 2.1)),
        ),
        "reset-srwm": (
            *((15.7, 2.8), (5.8, 1.3)),
            *((29.2, 0.2), (25.2, 1.4)),
            *((3.4, 0.2), (3.5, 0.3)),
            *((2.9, 0.2), (1.5, 0.3)),
            *((3.1, 0.1), (3.0, 0.2)),
            *((55.0, 1.9), (48.6, 1.9)),
        ),
    },
)
