"""The kernels of running maxima: a program has some heads of a sequence, and takes a block of steps at a time.

A step is a map x -> max(x + plus, floor). A scan joins the maps of a block, and its gradient those of x -> own + w x.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastweights.compiler.targets.triton.occupancy import POINTERS, Assembled, assemble_function, target_of

BLOCK = 256
"""Steps of a block."""
HEADS = 2
"""Heads of a program: those of one step are neighbours in memory."""
WARPS = 4
"""Warps of a program: four numbers of a block per thread."""


@triton.jit
def joined(plus, floor, next_plus, next_floor):
    """Two maps x -> max(x + plus, floor), one after the other. A `plus` of -inf forgets x, even a NaN."""
    forgets = next_plus == -float("inf")
    reached = tl.maximum(floor + next_plus, next_floor, propagate_nan=tl.PropagateNan.ALL)
    return tl.where(forgets, next_plus, plus + next_plus), tl.where(forgets, next_floor, reached)


@triton.jit
def added(share, own, next_share, next_own):
    """Two maps x -> own + share x, one after the other."""
    return share * next_share, next_own + next_share * own


@triton.jit(do_not_specialize=["T", "H"])
def walk(plus, floor, m, before, after, last, T, H, BLOCK: tl.constexpr, HEADS: tl.constexpr):
    """m before and after every step, and the last m."""
    b, head = tl.program_id(0).to(tl.int64), tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    step = tl.arange(0, BLOCK)[:, None]
    x = tl.load(m + b * H + head, mask=head < H, other=0.0)
    tl.store(before + b * T * H + head, x, mask=head < H)
    for first in range(0, T, BLOCK):
        t = first + step
        at, inside = (b * T + t) * H + head[None], (t < T) & (head < H)[None]
        p = tl.load(plus + at, mask=inside, other=0.0).to(x.dtype)
        f = tl.load(floor + at, mask=inside, other=-float("inf")).to(x.dtype)
        p, f = tl.associative_scan((p, f), 0, joined)
        reached = tl.maximum(x[None] + p, f, propagate_nan=tl.PropagateNan.ALL)
        reached = tl.where(p == -float("inf"), f, reached)
        tl.store(after + at, reached, mask=inside)
        tl.store(before + at + H, reached, mask=inside & (t + 1 < T))
        # Steps after the end keep m.
        x = tl.sum(tl.where(step == BLOCK - 1, reached, 0.0), 0)
    tl.store(last + b * H + head, x, mask=head < H)


@triton.jit(do_not_specialize=["T", "H"])
def walk_back(
    plus, floor, before, d_before, d_after, d_last, d_plus, d_floor, d_m,
    T, H, BLOCK: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """The gradients of `plus`, `floor` and the first m."""
    b, head = tl.program_id(0).to(tl.int64), tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    step = tl.arange(0, BLOCK)[:, None]
    # The gradient of m after the last step of a block, from later steps.
    later = tl.load(d_last + b * H + head, mask=head < H, other=0.0)
    for n in range(0, tl.cdiv(T, BLOCK)):
        t = (tl.cdiv(T, BLOCK) - 1 - n) * BLOCK + step
        at, inside = (b * T + t) * H + head[None], (t < T) & (head < H)[None]
        has_next = inside & (t + 1 < T)
        own = tl.load(d_after + at, mask=inside, other=0.0)
        own += tl.load(d_before + at + H, mask=has_next, other=0.0)
        # Steps after the end pass the gradient of the last m on. The last step of a block has its next one aside.
        is_last = step == BLOCK - 1
        next_share = tl.where(t + 1 < T, share_of(plus, floor, before, at + H, has_next), 1.0)
        share, total = tl.where(is_last, 1.0, next_share), tl.where(inside, own, 0.0)
        share, total = tl.associative_scan((share, total), 0, added, reverse=True)
        total += share * later[None]
        passed = share_of(plus, floor, before, at, inside) * total
        tl.store(d_plus + at, passed, mask=inside)
        tl.store(d_floor + at, total - passed, mask=inside)
        later = tl.sum(tl.where(step == 0, passed, 0.0), 0)
    tl.store(d_m + b * H + head, later + tl.load(d_before + b * T * H + head, mask=head < H), mask=head < H)


@triton.jit
def share_of(plus, floor, before, at, inside):
    """The share of the gradient of m after a step that goes to m before it: 1, or 1/2 if both arguments are equal."""
    x = tl.load(before + at, mask=inside, other=0.0)
    x += tl.load(plus + at, mask=inside, other=0.0).to(x.dtype)
    f = tl.load(floor + at, mask=inside, other=0.0).to(x.dtype)
    return tl.where(x > f, 1.0, tl.where(x == f, 0.5, 0.0)).to(x.dtype)


KERNELS = {"forward": walk, "backward": walk_back}
"""The kernels by name."""


def forward(plus: Tensor, floor: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """m before and after every step, and the last m."""
    before = torch.empty_like(plus, dtype=m.dtype)
    after, last = torch.empty_like(before), torch.empty_like(m)
    _launch(walk, plus, floor, m, before, after, last)
    return before, after, last


def backward(
    plus: Tensor, floor: Tensor, before: Tensor, d_before: Tensor, d_after: Tensor, d_last: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `plus`, `floor` and the first m."""
    d_plus, d_floor, d_m = (torch.empty_like(x) for x in (plus, floor, d_last))
    _launch(walk_back, plus, floor, before, d_before, d_after, d_last, d_plus, d_floor, d_m)
    return d_plus, d_floor, d_m


def assembled(name: str, dtype: torch.dtype, chip: str) -> Assembled:
    """A kernel compiled for a chip that need not be present, and the registers that it takes."""
    kernel, sizes = KERNELS[name], {"BLOCK": BLOCK, "HEADS": HEADS}
    types = {x: "i32" if x in ("T", "H") else POINTERS[dtype] for x in kernel.arg_names if x not in sizes}
    return assemble_function(kernel, types, sizes, target_of(chip), WARPS, f"kernel {name!r} of running maxima")


def _launch(kernel, *tensors: Tensor) -> None:
    (B, T, H), like = tensors[0].shape, tensors[0]
    with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
        kernel[(B, -(-H // HEADS))](*tensors, T, H, BLOCK=BLOCK, HEADS=HEADS, num_warps=WARPS)
