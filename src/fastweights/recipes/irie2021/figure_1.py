"""Agents of Atari after 50 million steps: the RDN and the Linear Transformer."""

from fastweights.recipes.irie2021._atari import NOT_WORSE, comparison

EXPERIMENT = comparison(1, "linear", 50, (NOT_WORSE,))
