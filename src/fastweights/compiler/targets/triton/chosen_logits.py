"""Kernels of a softmax over words whose logits never reach memory.

A program computes the logits of some rows and some words. The forward pass has a partial log-sum-exp for every span of
words. The backward pass computes the logits again, once for the gradient of the rows and once for that of the words.
Only rows from bounds[0] to bounds[1] are computed. The kernels read the bounds on the GPU, so that no synchronisation
is necessary. There are no atomics.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="assignment"
from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastweights.compiler.targets.triton.occupancy import OPTIONS, POINTERS, Assembled, assemble_function, target_of

TILE = 32
"""The rows or words of a program, of which it has the results."""
WORDS = 64
"""The words that a program of the forward pass reads at a time."""
DEPTH = 32
"""The columns of a product that are loaded at a time."""
PIECE = 128
"""The largest number of columns of a gradient that a program has. Wider gradients compute the logits more than once."""
SPAN = 4096
"""The smallest number of words of a span, a multiple of `WORDS`."""
SPANS = 8
"""The largest number of spans. Each has a gradient of the rows of its own, `[N, D]`."""
WARPS = 2
"""Warps of a program. For more, Triton has products of four warps, which several of its versions compile wrongly."""


@triton.jit
def matrix(pointer, first, N: tl.constexpr, end, columns, D: tl.constexpr):
    """N rows of a matrix `[end, D]` and some of its columns, 0 outside of it."""
    # One address of 64 bits, and distances of 32.
    row = tl.arange(0, N)
    inside = (row[:, None] < end - first) & (columns[None, :] < D)
    return tl.load(pointer + tl.cast(first, tl.int64) * D + (row[:, None] * D + columns[None, :]), inside, 0.0)


@triton.jit
def vector(pointer, first, N: tl.constexpr, start, end, other):
    """N elements of a vector, `other` outside of a range."""
    i = first + tl.arange(0, N)
    return tl.load(pointer + i, (i >= start) & (i < end), other)


@triton.jit
def logits_of(
    h, weight, bias, row, row_end, word, word_end, D: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr,
    DEPTH: tl.constexpr, PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """The logits of some rows and words, -inf for words after the end."""
    logits = tl.zeros([ROWS, WORDS], real)
    for first in range(0, D, DEPTH):
        d = first + tl.arange(0, DEPTH)
        x = matrix(h, row, ROWS, row_end, d, D)
        y = matrix(weight, word, WORDS, word_end, d, D)
        logits = tl.dot(x, tl.trans(y), logits, input_precision=PRECISION, out_dtype=real)
    return logits + vector(bias, word, WORDS, 0, word_end, -float("inf")).to(real)[None, :]


@triton.jit
def gradient_of(
    logits, word, chosen, totals, d_picked, d_totals, row, start, stop, ROWS: tl.constexpr, WORDS: tl.constexpr
):
    """The gradient of some logits, 0 for rows outside of the range."""
    total = vector(totals, row, ROWS, start, stop, float("inf"))
    result = tl.exp(logits - total[:, None]) * vector(d_totals, row, ROWS, start, stop, 0.0)[:, None]
    is_chosen = word + tl.arange(0, WORDS)[None, :] == vector(chosen, row, ROWS, start, stop, -1)[:, None]
    return result + tl.where(is_chosen, vector(d_picked, row, ROWS, start, stop, 0.0)[:, None], 0.0)


@triton.jit
def span_of(size, W, row, start, stop, ROWS: tl.constexpr):
    """The first word of the span of a program and its end: no word where no row is in the range."""
    first = tl.program_id(1) * size
    is_empty = (row >= stop) | (row + ROWS <= start)
    return first, tl.where(is_empty, first, tl.minimum(first + size, W))


@triton.jit(do_not_specialize=["N"])
def log_sum_exps(
    h, weight, bias, chosen, bounds, picked, totals, N, W, size, D: tl.constexpr,
    ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """The chosen logits in a span of words, 0 if they are in another one, and the log-sum-exps over the span."""
    start, stop = tl.load(bounds), tl.load(bounds + 1)
    row = tl.program_id(0) * ROWS
    target = vector(chosen, row, ROWS, start, stop, -1)
    largest, total = tl.full([ROWS], -float("inf"), real), tl.zeros([ROWS], real)
    picked_logit = tl.zeros([ROWS], real)
    first, end = span_of(size, W, row, start, stop, ROWS)
    for word in range(first, end, WORDS):
        logits = logits_of(h, weight, bias, row, stop, word, end, D, ROWS, WORDS, DEPTH, PRECISION, real)
        reached = tl.maximum(largest, tl.max(logits, 1))
        # -inf has no difference from itself.
        shift = tl.where(reached == -float("inf"), 0.0, reached)
        total = total * tl.exp(largest - shift) + tl.sum(tl.exp(logits - shift[:, None]), 1)
        picked_logit += tl.sum(tl.where(word + tl.arange(0, WORDS)[None, :] == target[:, None], logits, 0.0), 1)
        largest = reached
    rows = row + tl.arange(0, ROWS)
    place = tl.program_id(1).to(tl.int64) * N
    tl.store(picked + place + rows, picked_logit, rows < N)
    tl.store(totals + place + rows, largest + tl.log(total), rows < N)


@triton.jit(do_not_specialize=["N"])
def gradient_of_rows(
    h, weight, bias, chosen, bounds, totals, d_picked, d_totals, d_h, N, W, size, D: tl.constexpr,
    ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, PIECE: tl.constexpr, PRECISION: tl.constexpr,
    real: tl.constexpr,
):  # fmt: skip
    """The part of the gradient of some rows of h that comes from a span of words."""
    start, stop = tl.load(bounds), tl.load(bounds + 1)
    row = tl.program_id(0) * ROWS
    columns = tl.program_id(2) * PIECE + tl.arange(0, PIECE)
    result = tl.zeros([ROWS, PIECE], real)
    first, end = span_of(size, W, row, start, stop, ROWS)
    for word in range(first, end, WORDS):
        logits = logits_of(h, weight, bias, row, stop, word, end, D, ROWS, WORDS, DEPTH, PRECISION, real)
        d = gradient_of(logits, word, chosen, totals, d_picked, d_totals, row, start, stop, ROWS, WORDS)
        y = matrix(weight, word, WORDS, end, columns, D)
        result = tl.dot(d.to(y.dtype), y, result, input_precision=PRECISION, out_dtype=real)
    i = tl.arange(0, ROWS)[:, None]
    place = (tl.program_id(1).to(tl.int64) * N + row) * D
    tl.store(d_h + place + (i * D + columns[None, :]), result, (i < N - row) & (columns[None, :] < D))


@triton.jit
def gradient_of_words(
    h, weight, bias, chosen, bounds, totals, d_picked, d_totals, d_weight, d_bias, W, D: tl.constexpr,
    ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, PIECE: tl.constexpr, PRECISION: tl.constexpr,
    real: tl.constexpr,
):  # fmt: skip
    """The gradient of the weight and the bias of some words."""
    start, stop = tl.load(bounds), tl.load(bounds + 1)
    word = tl.program_id(0) * WORDS
    columns = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    result, total = tl.zeros([WORDS, PIECE], real), tl.zeros([WORDS], real)
    for row in range(start, stop, ROWS):
        logits = logits_of(h, weight, bias, row, stop, word, W, D, ROWS, WORDS, DEPTH, PRECISION, real)
        d = gradient_of(logits, word, chosen, totals, d_picked, d_totals, row, start, stop, ROWS, WORDS)
        x = matrix(h, row, ROWS, stop, columns, D)
        result = tl.dot(tl.trans(d).to(x.dtype), x, result, input_precision=PRECISION, out_dtype=real)
        total += tl.sum(d, 0)
    i = tl.arange(0, WORDS)
    inside = (i[:, None] < W - word) & (columns[None, :] < D)
    place = word.to(tl.int64) * D
    tl.store(d_weight + place + (i[:, None] * D + columns[None, :]), result.to(d_weight.dtype.element_ty), inside)
    if tl.program_id(1) == 0:
        tl.store(d_bias + word + i, total.to(d_bias.dtype.element_ty), i < W - word)


KERNELS = {"forward": log_sum_exps, "rows": gradient_of_rows, "words": gradient_of_words}
"""The kernels by name."""


def forward(h: Tensor, weight: Tensor, bias: Tensor, chosen: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """The chosen logits and the log-sum-exps `[N]` of the rows in a range, 0 for other rows."""
    (N, D), W, size = h.shape, len(weight), _span(len(weight))
    picked = h.new_empty((-(-W // size), N), dtype=real_of(h))
    totals = torch.empty_like(picked)
    sizes = sizes_of("forward", D, h.dtype)
    grid = (-(-N // sizes["ROWS"]), len(picked))
    _launch("forward", grid, h, weight, bias, chosen, bounds, picked, totals, N, W, size, **sizes)
    row = torch.arange(N, device=h.device)
    is_outside = (row < bounds[0]) | (row >= bounds[1])
    return picked.sum(0).masked_fill(is_outside, 0.0), totals.logsumexp(0).masked_fill(is_outside, 0.0)


def backward(
    h: Tensor, weight: Tensor, bias: Tensor, chosen: Tensor, bounds: Tensor, totals: Tensor,
    d_picked: Tensor, d_totals: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of h, the weight and the bias."""
    (N, D), W, size = h.shape, len(weight), _span(len(weight))
    inputs = (weight, bias, chosen, bounds, totals, d_picked, d_totals)
    d_h = h.new_empty((-(-W // size), N, D), dtype=totals.dtype)
    sizes = sizes_of("rows", D, h.dtype)
    pieces = -(-D // sizes["PIECE"])
    _launch("rows", (-(-N // sizes["ROWS"]), len(d_h), pieces), h, *inputs, d_h, N, W, size, **sizes)
    d_weight, d_bias = torch.empty_like(weight), torch.empty_like(bias)
    sizes = sizes_of("words", D, h.dtype)
    _launch("words", (-(-W // sizes["WORDS"]), pieces), h, *inputs, d_weight, d_bias, W, **sizes)
    return d_h.sum(0).to(h.dtype), d_weight, d_bias


def real_of(h: Tensor) -> torch.dtype:
    """The dtype of sums: at least float32."""
    return torch.promote_types(h.dtype, torch.float32)


def sizes_of(name: str, D: int, dtype: torch.dtype) -> dict[str, int]:
    """The sizes of the tiles of a kernel for vectors of D elements."""
    depth = max(16, triton.next_power_of_2(D))
    sizes = {"D": D, "DEPTH": min(DEPTH, depth)}
    if name == "forward":
        return sizes | {"ROWS": TILE, "WORDS": WORDS}
    # More of them would spill registers.
    others = TILE if dtype.itemsize < 4 else TILE // 2
    tile = {"ROWS": TILE, "WORDS": others} if name == "rows" else {"ROWS": others, "WORDS": TILE}
    return sizes | tile | {"PIECE": min(PIECE, depth)}


def assembled(name: str, D: int, dtype: torch.dtype, chip: str) -> Assembled:
    """A kernel compiled for a chip that need not be present, and the registers that it takes."""
    kernel, target = KERNELS[name], target_of(chip)
    fixed = sizes_of(name, D, dtype) | _products(dtype, target.backend == "hip")
    real = POINTERS[torch.promote_types(dtype, torch.float32)]
    types = {x: real for x in kernel.arg_names if x not in fixed}
    types |= dict.fromkeys(("chosen", "bounds"), "*i64")
    types |= {x: POINTERS[dtype] for x in ("h", "weight", "bias", "d_weight", "d_bias") if x in types}
    types |= {x: "i32" for x in ("N", "W", "size") if x in types}
    types = {x: types[x] for x in kernel.arg_names if x in types}
    return assemble_function(kernel, types, fixed, target, WARPS, f"kernel {name!r} of chosen logits")


def _span(W: int) -> int:
    """The number of words of a span, a multiple of `WORDS`."""
    return max(SPAN, -(-W // (SPANS * WORDS)) * WORDS)


def _products(dtype: torch.dtype, is_exact: bool) -> dict[str, Any]:
    """The precision of products of float32 and the dtype of their sums."""
    is_exact = is_exact or dtype != torch.float32
    real = tl.float64 if dtype == torch.float64 else tl.float32
    return {"PRECISION": "ieee" if is_exact else "tf32x3", "real": real}


def _launch(name: str, grid: tuple[int, ...], h: Tensor, *arguments: Any, **sizes: Any) -> None:
    fixed = sizes | _products(h.dtype, bool(torch.version.hip) or not h.is_cuda)
    with torch.cuda.device(h.device) if h.is_cuda else nullcontext():
        KERNELS[name][grid](h, *arguments, **fixed, num_warps=WARPS, **OPTIONS)
