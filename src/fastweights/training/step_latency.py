"""The latency of a time step of a model that carries a state."""

import time
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.training.eval_mode import evaluating

REPEATS, STEPS = 7, 20
"""Number of measurements, and of time steps per measurement."""


def step_latency(model: nn.Module, inputs: Tensor) -> float:
    """Median seconds per time step of one sequence, without gradients; 0 for a model without a method `step`.

    Args:
        model: A model with `step(inputs, state)` and `initial_state(batch_size)`.
        inputs: Inputs of a batch, `[B, T]` or `[B, T, .]`, of which one step is read again and again.
    """
    step: Any = getattr(model, "step", None)
    if step is None:
        return 0.0
    x = inputs[:1, :1]
    with torch.no_grad(), evaluating(model):
        times = [_seconds(model, x) for _ in range(REPEATS + 1)]
    return median(times[1:])  # the first call builds kernels


def _seconds(model: Any, x: Tensor) -> float:
    state = model.initial_state(1)
    begin = time.perf_counter()
    for _ in range(STEPS):
        _, state = model.step(x, state)
    if x.is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS
