"""Experiments and their runs, for `fastweights train` and `fastweights reproduce`."""
