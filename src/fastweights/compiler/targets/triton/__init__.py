"""Triton: kernels for GPUs. `target.py` has the functions of a target."""
