"""Checkpoints of flash-linear-attention as models of this library."""
