"""Agents of Atari after 50 million steps: the RDN and the LSTM."""

from fastweights.experiments.claim import Claim
from fastweights.recipes.irie2021._atari import GAMES, RDN, ahead, comparison

EXPERIMENT = comparison(
    3,
    "lstm",
    50,
    (
        Claim(
            "In 12 games of 20, the RDN yields improvements over the LSTM: in most of the games here.",
            "Sec. 4.4",
            ahead(RDN, "lstm", GAMES),
            at_least=len(GAMES) // 2 + 1,
        ),
    ),
)
