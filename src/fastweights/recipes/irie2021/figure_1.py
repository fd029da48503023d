"""Atari after 50 million steps: the RDN beside the Linear Transformer."""

from fastweights.recipes.irie2021._atari import comparison, wins

EXPERIMENT = comparison(1, "linear", 50, tuple(wins("recurrent-delta-net", "linear").values()))
