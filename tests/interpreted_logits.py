"""Runs checks of the Triton kernels of chosen logits in a separate process with Triton's interpreter.

    TRITON_INTERPRET=1 python tests/interpreted_logits.py CHECK DTYPE ... [-- CHECK DTYPE ...]

prints a line `DTYPE: ok` or `DTYPE:` with the error for every dtype.
"""

import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fastweights.compiler.chosen_logits import kernel_logits
from fastweights.compiler.targets.triton import chosen_logits as kernels
from fastweights.core.errors import InputError
from fastweights.models.adaptive_softmax import AdaptiveSoftmax
from fastweights.testing.tolerance import error, tolerance
from interpreted import interpret, run_apart
from test_graphed import imitate_gpu, training_steps

SHAPES = ((1, 1, 1), (5, 7, 3), (70, 150, 40), (33, 65, 140))
"""Rows, words and columns: fewer and more than a tile, and no multiple of it."""
BOUNDS = ((0, 1), (1, 4), (35, 40), (31, 33), (0, 0), (33, 33))
"""Ranges of rows: all, some, one tile only, parts of two tiles, and none."""


def equals_pytorch(dtype: torch.dtype) -> None:
    """Values and all gradients, with one and several spans of words and pieces of columns."""
    kernels.SPAN, kernels.SPANS = 64, 2
    for N, W, D in SHAPES:
        for bounds in {(0, N), *((min(first, N), min(end, N)) for first, end in BOUNDS)}:
            operands = [torch.randn(N, D), torch.randn(W, D), torch.randn(W)]
            chosen, weights = torch.randint(W, (N,)), torch.rand(2, N)
            results = []
            for run, real in ((kernel_logits, dtype), (definition, torch.float64)):
                leaves = [x.to(dtype).to(real).requires_grad_() for x in operands]
                outputs = run(*leaves, chosen, torch.tensor(bounds))
                total = sum((w * x).sum() for w, x in zip(weights, outputs, strict=True))
                results.append([*outputs, *torch.autograd.grad(total, leaves)])
            exact, exact_gradient = tolerance(dtype)
            limits = [exact, exact, exact_gradient, exact_gradient, exact_gradient]
            for got, want, limit in zip(*results, limits, strict=True):
                assert error(got, want) < limit, (N, W, D, bounds)


def definition(h: Tensor, weight: Tensor, bias: Tensor, chosen: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """All logits; 0 for rows outside of the bounds."""
    logits = h @ weight.mT + bias
    row = torch.arange(len(h))
    is_inside = (row >= bounds[0]) & (row < bounds[1])
    picked = logits.gather(-1, chosen[:, None]).squeeze(-1)
    return torch.where(is_inside, picked, 0.0), torch.where(is_inside, logits.logsumexp(-1), 0.0)


def rows_outside_may_be_nan(dtype: torch.dtype) -> None:
    """Rows outside of the bounds have no influence, whatever they are."""
    results = []
    for value in (0.0, torch.nan):
        torch.manual_seed(0)
        h, weight, bias = torch.randn(40, 20), torch.randn(50, 20), torch.randn(50)
        h[:7] = h[30:] = value
        leaves = [x.to(dtype).requires_grad_() for x in (h, weight, bias)]
        outputs = kernel_logits(*leaves, torch.randint(50, (40,)), torch.tensor([7, 30]))
        d_h, *others = torch.autograd.grad(sum(x.sum() for x in outputs), leaves)
        results.append([*(x.nan_to_num() for x in outputs), d_h[7:30], *others])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def rows_are_alone_what_they_are_in_a_batch(dtype: torch.dtype) -> None:
    """The same bits in another place of the batch."""
    h, weight, bias = (x.to(dtype) for x in (torch.randn(50, 20), torch.randn(70, 20), torch.randn(70)))
    chosen = torch.randint(70, (50,))
    whole = kernel_logits(h, weight, bias, chosen, torch.tensor([0, 50]))
    alone = kernel_logits(h[41:42], weight, bias, chosen[41:42], torch.tensor([0, 1]))
    assert all(torch.equal(one[0], other[41]) for one, other in zip(alone, whole, strict=True))


def adaptive_softmax_equals_its_log_probabilities(dtype: torch.dtype) -> None:
    """Losses and gradients, with and without targets in a cluster."""
    softmax = AdaptiveSoftmax(nn.Embedding(40, 12), (5, 9, 20)).to(dtype)
    nn.init.normal_(softmax.bias)
    h = torch.randn(3, 11, 12, dtype=dtype, requires_grad=True)
    leaves = [h, *softmax.parameters()]
    for highest in (40, 9, 5, 0):
        targets = torch.randint(-1, max(1, highest), (3, 11)).clamp(max=highest - 1)
        got = softmax.nll(h, targets)
        gradients = torch.autograd.grad(got.square().sum(), leaves)
        picked = softmax.log_prob(h).gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        want = torch.where(targets < 0, 0.0, -picked)
        assert error(got, want) < tolerance(dtype).forward
        for mine, theirs in zip(gradients, torch.autograd.grad(want.square().sum(), leaves), strict=True):
            assert error(mine, theirs) < tolerance(dtype).gradient


def refuses_second_derivatives(dtype: torch.dtype) -> None:
    """A second derivative of the losses raises an error that names the remedy."""
    softmax = AdaptiveSoftmax(nn.Embedding(40, 12), (5, 9, 20)).to(dtype)
    h = torch.randn(11, 12, dtype=dtype, requires_grad=True)
    losses = softmax.nll(h, torch.randint(40, (11,)))
    (d_h,) = torch.autograd.grad(losses.square().sum(), h, create_graph=True)
    with pytest.raises(InputError, match=r"nll must be differentiated once.*Use log_prob"):
        torch.autograd.grad(d_h.sum(), h)


def training_step_is_a_graph(dtype: torch.dtype) -> None:
    """A training step of a language model with an adaptive softmax reads no value, and its graph has the same bits."""
    torch.set_default_dtype(dtype)
    with pytest.MonkeyPatch.context() as patch:
        imitate_gpu(patch)
        (want, _), (got, recorder) = (
            training_steps("short-convolution", has_graph, cutoffs=(4, 7)) for has_graph in (False, True)
        )
    assert len(recorder.recordings) == 1
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


def is_an_operation(dtype: torch.dtype) -> None:
    """PyTorch's check of an operation: traced shapes, strides and gradients, and no mutation."""
    shapes = ((9, 5), (20, 5), (20,))
    tensors = [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in shapes]
    arguments = (*tensors, torch.randint(20, (9,)), torch.tensor([2, 7]))
    torch.library.opcheck(torch.ops.fastweights.chosen_logits.default, arguments)


CHECKS: dict[str, Callable[[torch.dtype], None]] = {
    f.__name__: f
    for f in (
        equals_pytorch,
        rows_outside_may_be_nan,
        rows_are_alone_what_they_are_in_a_batch,
        adaptive_softmax_equals_its_log_probabilities,
        training_step_is_a_graph,
        is_an_operation,
        refuses_second_derivatives,
    )
}


def main(check: str, dtypes: list[str]) -> None:
    """Prints a line per dtype."""
    interpret()
    for name in dtypes:
        torch.manual_seed(0)
        try:
            CHECKS[check](getattr(torch, name))
            print(f"{name}: ok", flush=True)
        except Exception as error:
            print(f"{name}:", " ".join(f"{type(error).__name__}: {error}".split()), flush=True)


if __name__ == "__main__":
    run_apart(sys.argv[1:], main)
