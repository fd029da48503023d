"""Experiments of Irie, Schlag, Csordas and Schmidhuber 2022."""
