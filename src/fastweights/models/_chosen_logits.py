"""Logits of chosen words and their sums over all words, without the logits of the other words in memory.

Where a device has no kernel, PyTorch computes them in blocks of rows that are not kept.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from fastweights.compiler.chosen_logits import has_kernel, kernel_logits, refuse_second_derivative
from fastweights.compiler.softmax import softmax_kernel
from fastweights.core.autocast import at_least_float32, autocasts, full_precision

BLOCK = 1 << 22
"""Maximum number of logits that exist at a time, 16 MB in float32."""


def chosen_logits(h: Tensor, weight: Tensor, bias: Tensor, chosen: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """The logit of one word per row and the log-sum-exp over all words, in float32 or float64.

    Logits are h weight^T + bias. The log-probability of the word is the difference of the two results. The backward
    pass recomputes the logits, and cannot be differentiated. Under autocast products have half precision, except in
    float64. With a Triton kernel there is no synchronisation; otherwise the host reads the bounds.

    Args:
        h: Hidden states `[N, D]`.
        weight: Rows of the words `[W, D]`.
        bias: Bias of the words `[W]`.
        chosen: Index of a word per row, int64 `[N]`.
        bounds: First row that is computed and the end, int64 `[2]`. Other rows have results of 0.

    Returns:
        The logits `[N]`, and the log-sum-exps `[N]`.
    """
    if autocasts(h.device) and h.dtype != torch.float64:
        h, weight, bias = (x.to(torch.get_autocast_dtype(h.device.type)) for x in (h, weight, bias))
    with full_precision(h.device):
        run = kernel_logits if has_kernel(h.device) else _of_range
        return run(h, weight, bias, chosen, bounds)


def _of_range(h: Tensor, weight: Tensor, bias: Tensor, chosen: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    start, stop = bounds.tolist()
    if start == stop:
        zeros = at_least_float32(h.new_zeros(len(h)))
        return zeros, zeros
    logits, totals = _ChosenLogits.apply(h[start:stop], weight, bias, chosen[start:stop])
    return pad(logits, (start, len(h) - stop)), pad(totals, (start, len(h) - stop))


class _ChosenLogits(torch.autograd.Function):
    @staticmethod
    def forward(h: Tensor, weight: Tensor, bias: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        totals, picked = [], []
        for rows in _blocks(h, weight):
            logits = linear(h[rows], weight, bias)
            totals.append(_log_sum_exp(logits))
            picked.append(at_least_float32(logits.gather(-1, chosen[rows].unsqueeze(-1)).squeeze(-1)))
        return torch.cat(picked), torch.cat(totals)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, d_picked: Tensor, d_totals: Tensor) -> tuple[Tensor | None, ...]:
        return *_Gradients.apply(*ctx.saved_tensors, d_picked, d_totals), None


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(
        h: Tensor, weight: Tensor, bias: Tensor, chosen: Tensor, totals: Tensor, d_picked: Tensor, d_totals: Tensor
    ) -> tuple[Tensor, ...]:
        d_h = torch.empty_like(h)
        d_weight, d_bias = (torch.zeros_like(x, dtype=totals.dtype) for x in (weight, bias))
        for rows in _blocks(h, weight):
            logits = linear(h[rows], weight, bias)
            d_logits = _gradient(logits, totals[rows], d_totals[rows], d_picked[rows], chosen[rows], d_bias)
            d_h[rows] = d_logits @ weight
            _add_product(d_weight, d_logits.mT, h[rows])
        return d_h, d_weight.to(weight.dtype), d_bias.to(bias.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        pass

    backward = staticmethod(refuse_second_derivative)


def _log_sum_exp(logits: Tensor) -> Tensor:
    """The log-sum-exp of every row, in float32 or float64."""
    kernel = softmax_kernel(logits)
    return kernel.log_sum_exp(logits) if kernel else at_least_float32(logits).logsumexp(-1)


def _gradient(
    logits: Tensor, totals: Tensor, d_totals: Tensor, d_picked: Tensor, chosen: Tensor, d_bias: Tensor
) -> Tensor:
    """The gradient of logits, which it may overwrite; adds its sums over the rows to `d_bias`."""
    kernel = softmax_kernel(logits)
    if kernel:
        return kernel.gradient_(logits, totals, d_totals, d_picked, chosen, d_bias)
    probabilities = at_least_float32(logits).sub_(totals[:, None]).exp_()
    d_logits = probabilities.mul_(d_totals[:, None]).scatter_add_(-1, chosen.unsqueeze(-1), d_picked[:, None])
    d_bias += d_logits.sum(0)
    return d_logits.to(logits.dtype)


def _add_product(total: Tensor, x: Tensor, y: Tensor) -> None:
    """total += x y, where total may be wider than the factors."""
    if total.dtype == x.dtype:
        total.addmm_(x, y)
    else:
        total += x @ y


def _blocks(h: Tensor, weight: Tensor) -> Iterator[slice]:
    """Blocks of rows."""
    size = max(1, BLOCK // len(weight))
    return (slice(start, start + size) for start in range(0, len(h), size))
