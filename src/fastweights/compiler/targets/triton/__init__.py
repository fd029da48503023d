"""Triton: kernels for GPUs from a lowered step. `target.py` has what the compiler asks of a target."""
