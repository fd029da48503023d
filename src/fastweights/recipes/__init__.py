"""Experiments, one per file.

A file defines an `EXPERIMENT`. A recipe of `fastweights train` is a frozen dataclass, whose fields are the flags.
"""
