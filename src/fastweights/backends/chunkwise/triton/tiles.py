"""Tiles of the chunk kernels: loads, stores, products, decays, and the inverse of a chunk.

Names of arguments, in all functions: `left` is the number of steps from the start of the chunk to the end of the
sequence, `H` the heads and `K` the columns of S. `DECAY` is the kind of decay: 0 for none, 1 for one number per step, 2
for one number per step and column, 3 and 4 for two states that mix, see `coupled.py`. S is a tuple of tiles
`[ROWS, BK]`, one for each of the `BLOCKS` blocks of columns. Each of two states has half of the blocks.

`PLACE` is the time of a step's decay: `AFTER` from the start of the chunk until after the step, `TO_END` from after it
until the end of the chunk, and a negative number -G from the start until before the step. There, G consecutive steps
are a group that reads the same S, the one before the first of them. Only the first step of a group decays. So the
product until before the group of step i contains the decays of the steps up to i - G.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="assignment"
import triton
import triton.language as tl

AFTER = tl.constexpr(0)
TO_END = tl.constexpr(1)


@triton.jit
def product(x, y, PRECISION: tl.constexpr):
    """x y, in the dtype of x."""
    return tl.dot(x, y, input_precision=PRECISION, out_dtype=x.dtype)


@triton.jit
def load(pointer, rows, columns, row_stride, column_stride, row_end, column_end, real: tl.constexpr):
    """Some rows and columns of a matrix, 0 outside of it."""
    inside = (rows[:, None] < row_end) & (columns[None, :] < column_end)
    return tl.load(pointer + (rows[:, None] * row_stride + columns[None, :] * column_stride), inside, 0.0).to(real)


@triton.jit
def store(pointer, rows, columns, row_stride, column_stride, row_end, column_end, x):
    """Stores some rows and columns of a matrix."""
    inside = (rows[:, None] < row_end) & (columns[None, :] < column_end)
    tl.store(pointer + (rows[:, None] * row_stride + columns[None, :] * column_stride), x, inside)


@triton.jit
def columns_of(block: tl.constexpr, K, DECAY: tl.constexpr, BLOCKS: tl.constexpr, BK: tl.constexpr):
    """The columns of a block of S. Those beyond its state are K."""
    if DECAY < 3:
        columns = block * BK + tl.arange(0, BK)
    else:
        column = block % (BLOCKS // 2) * BK + tl.arange(0, BK)
        columns = tl.where(column < K // 2, block // (BLOCKS // 2) * (K // 2) + column, K)
    return columns


@triton.jit
def load_state(pointer, rows, K, V, DECAY: tl.constexpr, BLOCKS: tl.constexpr, BK: tl.constexpr, real: tl.constexpr):
    """Some rows of an S `[V, K]`."""
    S = ()
    for block in tl.static_range(BLOCKS):
        columns = columns_of(block, K, DECAY, BLOCKS, BK)
        S = S + (load(pointer, rows, columns, K, 1, V, K, real),)  # noqa: RUF005
    return S


@triton.jit
def diagonal(
    rows, K, value: tl.constexpr, DECAY: tl.constexpr, BLOCKS: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr,
    real: tl.constexpr,
):  # fmt: skip
    """Some rows of the identity times a number."""
    S = ()
    for block in tl.static_range(BLOCKS):
        columns = columns_of(block, K, DECAY, BLOCKS, BK)
        S = S + (tl.where(rows[:, None] == columns[None, :], value, tl.zeros([ROWS, BK], real)),)  # noqa: RUF005
    return S


@triton.jit
def store_state(pointer, rows, K, V, S, DECAY: tl.constexpr, BLOCKS: tl.constexpr, BK: tl.constexpr):
    """Stores some rows of an S `[V, K]`."""
    for block in tl.static_range(BLOCKS):
        store(pointer, rows, columns_of(block, K, DECAY, BLOCKS, BK), K, 1, V, K, S[block])


@triton.jit
def factors(a, columns, shift, left, H, K, DECAY: tl.constexpr, C: tl.constexpr, real: tl.constexpr):
    """The decays of the steps i + shift of a chunk, `[C, 1]` or `[C, BK]`, and 1 outside of the chunk."""
    step = tl.arange(0, C) + shift
    inside = (step >= 0) & (step < left) & (step < C)
    if DECAY == 1:
        x = tl.load(a + step * H, inside, 1.0)[:, None]
    else:
        inside = inside[:, None] & (columns[None, :] < K)
        x = tl.load(a + (step[:, None] * H * K + columns[None, :]), inside, 1.0)
    return x.to(real)


@triton.jit
def decays(a, columns, left, H, K, DECAY: tl.constexpr, PLACE: tl.constexpr, C: tl.constexpr, real: tl.constexpr):
    """The products of the decays of a stretch of time for every step, `[C, 1]` or `[C, BK]`."""
    if DECAY == 0:
        weights = tl.full([C, 1], 1.0, real)
    else:
        weights = tl.cumprod(factors(a, columns, PLACE, left, H, K, DECAY, C, real), 0, reverse=PLACE == TO_END)
    return weights


@triton.jit
def row_of(x, t, C: tl.constexpr):
    """Row t of a tile `[C, N]`."""
    return tl.sum(tl.where(tl.arange(0, C)[:, None] == t, x, 0.0), 0)


@triton.jit
def column_of(x, t, C: tl.constexpr):
    """Column t of a tile `[N, C]`."""
    return tl.sum(tl.where(tl.arange(0, C)[None, :] == t, x, 0.0), 1)


@triton.jit
def decayed(S, a, columns, left, H, K, DECAY: tl.constexpr, C: tl.constexpr, real: tl.constexpr):
    """Some columns of S times the decays of the whole chunk."""
    if DECAY > 0:
        S = S * row_of(decays(a, columns, left, H, K, DECAY, AFTER, C, real), C - 1, C)[None, :]
    return S


@triton.jit
def read_plain(
    S,
    x,
    a,
    left,
    H,
    K,
    DECAY: tl.constexpr,
    PLACE: tl.constexpr,
    C: tl.constexpr,
    BLOCKS: tl.constexpr,
    BK: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    real: tl.constexpr,
):
    """S x^T `[ROWS, C]` for the vectors x of a chunk, decayed."""
    i = tl.arange(0, C)
    result = tl.zeros([ROWS, C], real)
    for block in tl.static_range(BLOCKS):
        columns = block * BK + tl.arange(0, BK)
        if DECAY == 2:
            weights = decays(a, columns, left, H, K, DECAY, PLACE, C, real)
            x_ = tl.trans(load(x, i, columns, H * K, 1, left, K, real) * weights)
        else:
            x_ = load(x, columns, i, 1, H * K, K, left, real)
        result += product(S[block], x_, PRECISION)
    if DECAY == 1:
        result *= tl.trans(decays(a, i, left, H, K, DECAY, PLACE, C, real))
    return result


@triton.jit
def add_plain(
    S,
    u,
    x,
    a,
    left,
    H,
    K,
    DECAY: tl.constexpr,
    PLACE: tl.constexpr,
    WHOLE: tl.constexpr,
    C: tl.constexpr,
    BLOCKS: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
    real: tl.constexpr,
):
    """S + u x for u `[ROWS, C]`, with the decayed vectors x of a chunk.

    With `WHOLE`, S is decayed by the whole chunk first.
    """
    i = tl.arange(0, C)
    new = ()
    for block in tl.static_range(BLOCKS):
        columns = block * BK + tl.arange(0, BK)
        weights = decays(a, columns, left, H, K, DECAY, PLACE, C, real)
        x_ = load(x, i, columns, H * K, 1, left, K, real) * weights
        S_ = decayed(S[block], a, columns, left, H, K, DECAY, C, real) if WHOLE else S[block]
        new = new + (S_ + product(u, x_, PRECISION),)  # noqa: RUF005
    return new


@triton.jit
def between(a, left, H, DECAY: tl.constexpr, PLACE: tl.constexpr, C: tl.constexpr, real: tl.constexpr):
    """The decay from after one step until after a later one, or until before its group, `[earlier step, later step]`.

    Other pairs have 0. After the step, a step and itself have 1.
    """
    i = tl.arange(0, C)
    earlier, later = i[:, None], i[None, :]
    is_read = earlier <= later if PLACE == AFTER else earlier // -PLACE < later // -PLACE
    if DECAY == 1:
        step = tl.trans(factors(a, i, PLACE, left, H, 1, DECAY, C, real))
        weights = tl.where(is_read, tl.cumprod(tl.where(later > earlier - PLACE, step, 1.0), 1), 0.0).to(real)
    else:
        weights = tl.where(is_read, 1.0, 0.0).to(real)
    return weights


@triton.jit
def inverse_of(A, C: tl.constexpr, LEVELS: tl.constexpr, PRECISION: tl.constexpr):
    """(I + A)^-1 for an A that is 0 on and below the diagonal.

    The inverse grows from blocks on the diagonal. The part of A that joins two blocks makes one inverse of theirs. The
    error is that of substitution. A series of powers of A loses all digits where keys resemble each other.
    """
    i = tl.arange(0, C)
    row, column = i[:, None], i[None, :]
    inverse = tl.where(row == column, 1.0, 0.0).to(A.dtype) - tl.where(row >> 1 == column >> 1, A, 0.0)
    for level in tl.static_range(1, LEVELS):
        joins = (row >> (level + 1) == column >> (level + 1)) & (row >> level != column >> level)
        joint = product(tl.where(joins, A, 0.0), inverse, PRECISION)
        inverse -= product(inverse, joint, PRECISION)
    return inverse


@triton.jit
def through_rows(
    x, S, columns, left, H, K, V, C: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
    real: tl.constexpr,
):  # fmt: skip
    """x S `[C, BK]` for the vectors x `[C, V]` of a chunk and some columns of an S `[V, K]` in memory."""
    i = tl.arange(0, C)
    result = tl.zeros([C, BK], real)
    for first in range(0, V, ROWS):
        rows = first + tl.arange(0, ROWS)
        x_ = load(x, i, rows, H * V, 1, left, V, real)
        result += product(x_, load(S, rows, columns, K, 1, V, K, real), PRECISION)
    return result
