"""Normalisers of keys and queries, one per file: functions of the last axis."""

from fastweights.normalisers.l2 import l2
from fastweights.normalisers.none import none
from fastweights.normalisers.sum import sum

__all__ = [
    "l2",
    "none",
    "sum",
]
