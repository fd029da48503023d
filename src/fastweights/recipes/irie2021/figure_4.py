"""Agents of Atari after 200 million steps: the RDN and the LSTM."""

from fastweights.experiments.claim import Claim
from fastweights.recipes.irie2021._atari import RDN, ahead, comparison

EXPERIMENT = comparison(
    4,
    "lstm",
    200,
    (
        Claim(
            "With longer training, the LSTM surpasses the performance of the RDN in Battlezone, Gopher, Seaquest and "
            "Zaxxon.",
            "Sec. 4.4",
            ahead("lstm", RDN, ("battle_zone", "gopher", "seaquest", "zaxxon")),
        ),
    ),
)
