"""Rate activations, one per file: functions that map an output of the slow network to the range of a rate."""

from fastweights.rate_activations.sigmoid import sigmoid
from fastweights.rate_activations.twice_sigmoid import twice_sigmoid

__all__ = [
    "sigmoid",
    "twice_sigmoid",
]
