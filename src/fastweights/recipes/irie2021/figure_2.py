"""Atari after 200 million steps: the RDN beside the Linear Transformer."""

from fastweights.recipes.irie2021._atari import comparison, wins

EXPERIMENT = comparison(2, "linear", 200, tuple(wins("recurrent-delta-net", "linear").values()))
