"""Agents of Atari after 200 million steps: the RDN and all baselines of the appendix."""

from fastweights.experiments.claim import Claim
from fastweights.recipes.irie2021._atari import GAMES, MODELS, RDN, ahead, atari

DELTA = ("delta-net", "delta-rnn", RDN)

EXPERIMENT = atari(
    "Atari: delta rule models, the Linear Transformer, the LSTM and a network without memory",
    "Irie, Schlag, Csordas and Schmidhuber 2021, Sec. 4.4 and appendix C, whose numbers we do not have",
    {name: label for name, label in MODELS.items() if name != f"{RDN}-large"},
    GAMES,
    "up_n_down",
    200,
    (
        Claim(
            "The Linear Transformer consistently underperforms other models based on the delta rule, with at most two "
            "games as exceptions per model.",
            "Sec. 4.4",
            tuple(part for model in DELTA for part in ahead(model, "linear", GAMES)),
            at_least=len(DELTA) * (len(GAMES) - 2),
        ),
    ),
)
