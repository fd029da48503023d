"""Normalisers of keys and queries: one file, one function of the last axis."""
