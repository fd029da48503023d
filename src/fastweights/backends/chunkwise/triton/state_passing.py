"""State passing in Triton: S is carried through all chunks in one launch, and its gradient back in another.

`loop.py` defines both as loops over chunks, in which every chunk costs several launches. In these kernels a program
takes some rows of S, which are independent, through all chunks, a few vectors of a chunk at a time.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastweights.backends.chunkwise.chunk_maps import ChunkMaps
from fastweights.compiler.targets.triton.occupancy import (
    MOST,
    OPTIONS,
    POINTERS,
    Assembled,
    assemble_function,
    chip_here,
    fewest,
    target_of,
)

IS_FUSED = True
TILE = 16
"""Rows of S per program, and vectors that it takes at a time: the smallest tile of `tl.dot`."""
LONG, SHORT = ("N", "M"), ("R", "K", "U", "E", "Q", "decay_per_chunk", "decay_per_column")
"""Integer arguments of the kernels, by their width."""


@triton.jit
def _tile(pointer, rows, count, columns, width):
    """Loads some rows of a matrix `[count, width]`, padded with 0."""
    inside = (rows[:, None] < count) & (columns[None, :] < width)
    return tl.load(pointer + rows[:, None] * width + columns[None, :], inside, 0.0)


@triton.jit
def _put(pointer, rows, count, columns, width, x):
    """Stores some rows of a matrix `[count, width]`."""
    inside = (rows[:, None] < count) & (columns[None, :] < width)
    tl.store(pointer + rows[:, None] * width + columns[None, :], x, inside)


@triton.jit
def _product(x, y):
    """x y in the dtype and the full precision of x."""
    return tl.dot(x, y, input_precision="ieee", out_dtype=x.dtype)


@triton.jit
def forward(
    S,
    chunk_decay,
    keys,
    values,
    ends,
    starts,
    last,
    N: tl.int64,
    M: tl.int64,
    R,
    K,
    U,
    E,
    decay_per_chunk,
    decay_per_column,
    DECAYS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEPS: tl.constexpr,
):
    """S = S * kept + (values + keys S^T)^T ends, N times; `E` of `U` vectors have keys."""
    m = tl.program_id(0).to(tl.int64)
    rows, columns = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    x = _tile(S + m * R * K, rows, R, columns, K)
    for n in range(0, N):
        at = n * M + m
        _put(starts + at * R * K, rows, R, columns, K, x)
        new = x
        if DECAYS:
            new = (
                x * tl.load(chunk_decay + at * decay_per_chunk + columns * decay_per_column, columns < K, 0.0)[None, :]
            )
        for first in range(0, U, STEPS):
            steps = first + tl.arange(0, STEPS)
            u = _tile(values + at * U * R, steps, U, rows, R)
            if first < E:
                u += _product(_tile(keys + at * E * K, steps, E, columns, K), tl.trans(x))
            new += _product(tl.trans(u), _tile(ends + at * U * K, steps, U, columns, K))
        x = new
    _put(last + m * R * K, rows, R, columns, K, x)


@triton.jit
def backward(
    d_S,
    chunk_decay,
    keys,
    ends,
    queries,
    d_read,
    d_starts,
    d_written,
    d_after,
    d_first,
    N: tl.int64,
    M: tl.int64,
    R,
    K,
    U,
    E,
    Q,
    decay_per_chunk,
    decay_per_column,
    DECAYS: tl.constexpr,
    STARTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEPS: tl.constexpr,
):
    """The gradients of what is written, of the S after every chunk and of the first; `Q` vectors read."""
    m = tl.program_id(0).to(tl.int64)
    rows, columns = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    x = _tile(d_S + m * R * K, rows, R, columns, K)
    for back in range(0, N):
        at = (N - 1 - back) * M + m
        _put(d_after + at * R * K, rows, R, columns, K, x)
        new = x
        if DECAYS:
            new = (
                x * tl.load(chunk_decay + at * decay_per_chunk + columns * decay_per_column, columns < K, 0.0)[None, :]
            )
        if STARTS:
            new += _tile(d_starts + at * R * K, rows, R, columns, K)
        for first in range(0, Q, STEPS):
            steps = first + tl.arange(0, STEPS)
            d_r = _tile(d_read + at * Q * R, steps, Q, rows, R)
            new += _product(tl.trans(d_r), _tile(queries + at * Q * K, steps, Q, columns, K))
        for first in range(0, U, STEPS):
            steps = first + tl.arange(0, STEPS)
            d_u = _product(_tile(ends + at * U * K, steps, U, columns, K), tl.trans(x))
            _put(d_written + at * U * R, steps, U, rows, R, d_u)
            if first < E:
                new += _product(tl.trans(d_u), _tile(keys + at * E * K, steps, E, columns, K))
        x = new
    _put(d_first + m * R * K, rows, R, columns, K, x)


def walk(S: Tensor, maps: ChunkMaps) -> tuple[Tensor, Tensor]:
    """The S before every chunk, and the last S."""
    starts, last = S.new_empty(len(maps.values), *S.shape), S.new_empty(S.shape)
    operands = [S, _tensor(maps.chunk_decay), maps.keys, maps.values, maps.ends]
    _launch(forward, operands, [starts, last], [maps.values, maps.keys], {})
    return starts, last


def walk_back(
    maps: ChunkMaps, d_read: Tensor | None, d_last: Tensor, d_starts: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of what is written, of the S after every chunk, and of the first S."""
    d_after = d_last.new_empty(len(maps.ends), *d_last.shape)
    d_written = d_last.new_empty(*maps.ends.shape[:-1], d_last.shape[-2])
    d_first = d_last.new_empty(d_last.shape)
    operands = [d_last, _tensor(maps.chunk_decay), maps.keys, maps.ends, maps.queries, d_read, d_starts]
    flags = {"STARTS": d_starts is not None}
    _launch(backward, operands, [d_written, d_after, d_first], [maps.ends, maps.keys, d_read], flags)
    return d_written, d_after, d_first


def _tensor(chunk_decay: Tensor | float) -> Tensor | None:
    return chunk_decay if isinstance(chunk_decay, Tensor) else None


def _launch(
    kernel: Any,
    operands: list[Tensor | None],
    results: list[Tensor],
    counted: list[Tensor | None],
    flags: dict[str, bool],
) -> None:
    """Launches a kernel, with the number of vectors per chunk of the tensors that are `counted`."""
    (M, R, K), N, chunk_decay = results[-1].shape, len(results[-2]), operands[1]
    width = 0 if chunk_decay is None else chunk_decay.shape[-1]
    numbers = [N, M, R, K, *(0 if x is None else x.shape[-2] for x in counted), width, int(width > 1)]
    # A pointer that nothing reads may be any.
    pointers = [results[-1] if x is None else x.contiguous() for x in (*operands, *results)]
    named = {"DECAYS": chunk_decay is not None, **flags, **tiles(K)}
    like, way = results[-1], "forward" if kernel is forward else "backward"
    with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
        warps = choose(way, K, like.dtype, chip_here()).warps if like.is_cuda else 1
        kernel[(M, triton.cdiv(R, TILE))](*pointers, *numbers, **named, num_warps=warps, **OPTIONS)


def tiles(K: int) -> dict[str, int]:
    """The sizes of the tiles, powers of two."""
    return {"ROWS": TILE, "COLUMNS": max(TILE, triton.next_power_of_2(K)), "STEPS": TILE}


def assembled(way: str, K: int, dtype: torch.dtype, chip: str) -> Assembled:
    """The kernel of a pass, compiled for a chip that need not be here."""
    return choose(way, K, dtype, target_of(chip))


@lru_cache(1000)
def choose(way: str, K: int, dtype: torch.dtype, target: Any) -> Assembled:
    """The kernel with the fewest warps among those that spill the least, with all options on.

    The search starts where a thread holds 16 entries of S.
    """
    function = forward if way == "forward" else backward
    shape = tiles(K)
    flags = {name: True for name in ("DECAYS", "STARTS") if name in function.arg_names} | shape
    kinds = dict.fromkeys(LONG, "i64") | dict.fromkeys(SHORT, "i32")
    types = {name: kinds.get(name, POINTERS[dtype]) for name in function.arg_names if name not in flags}
    title = f"state passing with K={K}"

    def assemble(warps: int) -> Assembled:
        return assemble_function(function, types, flags, target, warps, title)

    return fewest(assemble, min(MOST, max(1, shape["COLUMNS"] // 32)))
