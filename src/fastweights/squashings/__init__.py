"""Squashings: one file, one function that brings a rate into its range."""

from fastweights.squashings.sigmoid import sigmoid
from fastweights.squashings.twice_sigmoid import twice_sigmoid

__all__ = [
    "sigmoid",
    "twice_sigmoid",
]
