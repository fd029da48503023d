"""Atari after 50 million steps: the RDN beside the LSTM."""

from fastweights.recipes.irie2021._atari import comparison, wins

EXPERIMENT = comparison(3, "lstm", 50, tuple(wins("recurrent-delta-net", "lstm").values()))
