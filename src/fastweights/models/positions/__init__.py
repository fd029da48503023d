"""Positions, one kind per file: layers of a stack that add the position of a step to x `[B, T, D]`."""
