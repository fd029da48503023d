"""Compiles cells: from a step in plain PyTorch to kernels. The passes are listed in `pipeline.py`."""
