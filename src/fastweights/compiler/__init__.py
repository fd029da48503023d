"""Compiles a cell for CPU: trace the step and its gradient, lower them to loops, emit C++, build it, run it.

`trace` -> `lower` (with `ir` and `algebra`) -> `schedule` -> `emit` -> `build` -> `kernel`, and `op` for PyTorch.
"""
