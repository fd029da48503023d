"""Atari where the LSTM dominates: a larger RDN."""

from fastweights.experiments.claim import Claim
from fastweights.experiments.experiment import table
from fastweights.recipes.irie2021._atari import GAMES, MODELS, RDN, ahead, atari

DOMINATED = ("battle_zone", "berzerk", "gopher", "seaquest")

EXPERIMENT = atari(
    "Atari: a larger RDN in games where the LSTM dominates",
    "Irie, Schlag, Csordas and Schmidhuber 2021, Sec. 4.4, Table 3",
    {name: MODELS[name] for name in ("lstm", "recurrent-delta-net", "recurrent-delta-net-large")},
    {game: GAMES[game] for game in DOMINATED},
    "gopher",
    200,
    (
        Claim(
            "Larger RDN models reduce the gap to the LSTM, except in Berzerk.",
            "Sec. 4.4",
            ahead(f"{RDN}-large", RDN, (game for game in DOMINATED if game != "berzerk")),
        ),
    ),
    table(
        DOMINATED,
        {
            "lstm": ((24_873, 1_240), (1_150, 92), (124_914, 22_422), (12_643, 1_627)),
            "recurrent-delta-net": ((10_980, 1_104), (348, 17), (86_008, 11_815), (4_373, 504)),
            "recurrent-delta-net-large": ((28_273, 5_333), (346, 9), (118_273, 14_872), (14_601, 712)),
        },
    ),
)
