"""Agents of Atari after 200 million steps: the RDN and the Linear Transformer."""

from fastweights.recipes.irie2021._atari import NOT_WORSE, comparison

EXPERIMENT = comparison(2, "linear", 200, (NOT_WORSE,))
