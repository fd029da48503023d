"""Triton kernels of the chunkwise backend."""
