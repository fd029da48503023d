"""Squashings: one file, one function that brings a rate into its range."""

from fastweights.rate_activations.sigmoid import sigmoid
from fastweights.rate_activations.twice_sigmoid import twice_sigmoid

__all__ = [
    "sigmoid",
    "twice_sigmoid",
]
