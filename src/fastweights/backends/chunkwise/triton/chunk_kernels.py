"""Chunk kernels for a memory S `[V, K]` with one write and one read per step, any decay, forward and backward.

    u[t] = v[t] - S[t-1] e[t],     S[t] = S[t-1] diag(a[t]) + u[t] k[t]^T,     y[t] = S[t] q[t]  or  S[t-1] q[t]

ERASES consecutive steps are a group that reads the same S, the one before the first of them: the writes of one step of
a cell that erases several times. The decay of a group is that of its first step, and u[t] = v[t] - S[t'-1] e[t] with t'
its first step. ERASES is 0 where nothing is erased. READS is the place of the reads, see `tiles.py`.

A long sequence is cut into segments of whole chunks, which run at once. A segment turns the S before it into S M + W.
`walk` computes W of every segment from an S of 0, and M from the identity without values. `join` computes the S before
every segment. Then `walk` and `walk_back` run all segments as if they were sequences of their own.

The kernels know no cell. v, e, a, k and q are the coefficients of its affine form. In a chunk of C steps, let
P[i,j] be the decay from after step j until after step i, B[i,j] the decay until before step i, c and b the same from
the start of the chunk, r[j] the decay from after step j until the end, and S0 the S before it. With u as rows,

    (I + (e k^T) * B) u = v - b (e S0^T),     y = c (q S0^T) + ((q k^T) * P) u,     S = S0 prod(a) + (r u)^T k

- `prepare`: the inverse of I + (e k^T) * B and the scores (q k^T) * P of every chunk; in the backward pass also u.
- `walk`: S from chunk to chunk, and y. A program takes some rows of S, which are independent.
- `walk_back`: the gradient of S from the last chunk to the first, and the gradient of v.
- `gradients`: the gradients of q, k, e and a of every chunk.
- `back`: the work of `prepare`, `walk_back` and `gradients` for a short sequence. `walk` has a mode of this kind, too.

Decays are products, never exponentials of sums of logarithms. A decay of 0 is exact, and a negative one is allowed. For
a decay per column, P and B differ from column to column. `scores_by_column` and `gradients_by_column` then carry the
decayed keys, and their gradients, from step to step inside a chunk.

No kernel uses atomics. No sum depends on the size of the batch or on T.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="assignment"
import triton
import triton.language as tl

from fastweights.backends.chunkwise.triton.coupled import (
    add_coupled,
    gradients_of_coupled,
    read_coupled,
    scores_of_coupled,
)
from fastweights.backends.chunkwise.triton.tiles import (
    AFTER,
    TO_END,
    add_plain,
    between,
    column_of,
    columns_of,
    decays,
    diagonal,
    factors,
    inverse_of,
    load,
    load_state,
    product,
    read_plain,
    row_of,
    store,
    store_state,
    through_rows,
)

WHOLE = tl.constexpr(0)
"""`walk` computes the outputs and the last state of a segment."""
WRITTEN = tl.constexpr(1)
"""`walk` computes the sum of the writes of a segment: its last state from S = 0."""
MAP = tl.constexpr(2)
"""`walk` computes the matrix that a segment multiplies the S before it by."""


@triton.jit
def alone(
    q,
    k,
    e,
    a,
    left,
    H,
    K,
    ERASES: tl.constexpr,
    DECAY: tl.constexpr,
    READS: tl.constexpr,
    C: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCKS: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
    real: tl.constexpr,
):
    """The inverse and the scores of a chunk, `[earlier step, later step]`."""
    if DECAY >= 3:
        kq, ke = scores_of_coupled(q, k, e, a, left, H, K, ERASES, DECAY, READS, C, BLOCKS, BK, real)
    elif DECAY == 2:
        kq, ke = scores_by_column(q, k, e, a, left, H, K, ERASES, READS, C, BLOCKS, BK, real)
    else:
        kq, ke = products_of_keys(q, k, e, left, H, K, ERASES, C, BLOCKS, BK, PRECISION, real)
        kq *= between(a, left, H, DECAY, READS, C, real)
        if ERASES:
            ke *= between(a, left, H, DECAY, -ERASES, C, real)
    inverse = inverse_of(ke, C, LEVELS, PRECISION) if ERASES else ke
    return inverse, kq


@triton.jit
def products_of_keys(
    q,
    k,
    e,
    left,
    H,
    K,
    ERASES: tl.constexpr,
    C: tl.constexpr,
    BLOCKS: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
    real: tl.constexpr,
):
    """k q^T and k e^T of a chunk."""
    i = tl.arange(0, C)
    kq, ke = tl.zeros([C, C], real), tl.zeros([C, C], real)
    for block in range(0, BLOCKS):
        columns = block * BK + tl.arange(0, BK)
        k_ = load(k, i, columns, H * K, 1, left, K, real)
        kq += product(k_, load(q, columns, i, 1, H * K, K, left, real), PRECISION)
        if ERASES:
            ke += product(k_, load(e, columns, i, 1, H * K, K, left, real), PRECISION)
    return kq, ke


@triton.jit
def vector(pointer, columns, t, left, H, K, other, real: tl.constexpr):
    """The vector of step t."""
    return tl.load(pointer + (t * H * K + columns), (columns < K) & (t < left), other).to(real)


@triton.jit
def scores_by_column(
    q,
    k,
    e,
    a,
    left,
    H,
    K,
    ERASES: tl.constexpr,
    READS: tl.constexpr,
    C: tl.constexpr,
    BLOCKS: tl.constexpr,
    BK: tl.constexpr,
    real: tl.constexpr,
):
    """The scores of a chunk whose columns decay by themselves: products with keys that decay from step to step.

    `before` are the keys before the group of step t.
    """
    GROUP: tl.constexpr = ERASES if ERASES else 1
    i = tl.arange(0, C)
    kq, ke = tl.zeros([C, C], real), tl.zeros([C, C], real)
    for block in range(0, BLOCKS):
        columns = block * BK + tl.arange(0, BK)
        keys = tl.zeros([C, BK], real)
        before = keys
        for t in range(0, C):
            is_t = i[None, :] == t
            if t % GROUP == 0:
                before = keys
            q_ = vector(q, columns, t, left, H, K, 0.0, real)
            if ERASES:
                e_ = vector(e, columns, t, left, H, K, 0.0, real)
                ke += tl.where(is_t, tl.sum(before * e_[None, :], 1)[:, None], 0.0)
            if READS != AFTER:
                kq += tl.where(is_t, tl.sum(before * q_[None, :], 1)[:, None], 0.0)
            keys *= vector(a, columns, t, left, H, K, 1.0, real)[None, :]
            keys = tl.where(i[:, None] == t, vector(k, columns, t, left, H, K, 0.0, real)[None, :], keys)
            if READS == AFTER:
                kq += tl.where(is_t, tl.sum(keys * q_[None, :], 1)[:, None], 0.0)
    return kq, ke


@triton.jit
def read(
    S, x, a, left, H, K, DECAY: tl.constexpr, PLACE: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr,
    BK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """S x^T `[ROWS, C]` for the vectors x of a chunk, decayed."""
    if DECAY >= 3:
        result = read_coupled(S, x, a, left, H, K, DECAY, PLACE, C, BLOCKS, BK, ROWS, PRECISION, real)
    else:
        result = read_plain(S, x, a, left, H, K, DECAY, PLACE, C, BLOCKS, BK, ROWS, PRECISION, real)
    return result


@triton.jit
def add(
    S, u, x, a, left, H, K, DECAY: tl.constexpr, PLACE: tl.constexpr, WHOLE: tl.constexpr, C: tl.constexpr,
    BLOCKS: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """S + u x for u `[ROWS, C]`, with the decayed vectors x of a chunk.

    With `WHOLE`, S is decayed by the whole chunk first.
    """
    if DECAY >= 3:
        new = add_coupled(S, u, x, a, left, H, K, DECAY, PLACE, WHOLE, C, BLOCKS, BK, PRECISION, real)
    else:
        new = add_plain(S, u, x, a, left, H, K, DECAY, PLACE, WHOLE, C, BLOCKS, BK, PRECISION, real)
    return new


@triton.jit
def written(
    S,
    v,
    e,
    a,
    inverse,
    rows,
    left,
    H,
    K,
    V,
    ERASES: tl.constexpr,
    DECAY: tl.constexpr,
    C: tl.constexpr,
    BLOCKS: tl.constexpr,
    BK: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    real: tl.constexpr,
    HAS_VALUES: tl.constexpr = True,
):
    """u of a chunk, `[ROWS, C]`. All v are 0 without `HAS_VALUES`."""
    u = tl.zeros([ROWS, C], real)
    if HAS_VALUES:
        u = load(v, rows, tl.arange(0, C), 1, H * V, V, left, real)
    if ERASES:
        u -= read(S, e, a, left, H, K, DECAY, -ERASES, C, BLOCKS, BK, ROWS, PRECISION, real)
        u = product(u, inverse, PRECISION)
    return u


@triton.jit(do_not_specialize=["T", "H", "N"])
def prepare(
    q,
    k,
    e,
    v,
    a,
    starts,
    inverses,
    scores,
    u,
    T,
    H,
    N,
    K: tl.constexpr,
    V: tl.constexpr,
    F: tl.constexpr,
    ERASES: tl.constexpr,
    DECAY: tl.constexpr,
    READS: tl.constexpr,
    WRITES: tl.constexpr,
    C: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCKS: tl.constexpr,
    BK: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    real: tl.constexpr,
):
    """The inverse and the scores of one chunk, and with `WRITES` also u, from the S before the chunk."""
    place, i = tl.program_id(0).to(tl.int64), tl.arange(0, C)
    m, n = place // N, place % N
    at, left = (m // H * T + n * C) * H + m % H, T - n * C
    q, k, e, v, a = q + at * K, k + at * K, e + at * K, v + at * V, a + at * F
    inverse, kq = alone(q, k, e, a, left, H, K, ERASES, DECAY, READS, C, LEVELS, BLOCKS, BK, PRECISION, real)
    store(scores + place * C * C, i, i, C, 1, C, C, kq)
    if ERASES:
        store(inverses + place * C * C, i, i, C, 1, C, C, inverse)
    if WRITES:
        for first in range(0, V, ROWS):
            rows = first + tl.arange(0, ROWS)
            S = load_state(starts + place * V * K, rows, K, V, DECAY, BLOCKS, BK, real)
            u_ = written(S, v, e, a, inverse, rows, left, H, K, V, ERASES, DECAY, C, BLOCKS, BK, ROWS, PRECISION, real)
            store(u + at * V, rows, i, 1, H * V, V, left, u_)


@triton.jit(do_not_specialize=["T", "H", "N", "CUT", "SEGMENTS"])
def walk(
    q,
    k,
    e,
    v,
    a,
    S_first,
    inverses,
    scores,
    y,
    S_last,
    starts,
    T,
    H,
    N,
    CUT,
    SEGMENTS,
    K: tl.constexpr,
    V: tl.constexpr,
    F: tl.constexpr,
    ERASES: tl.constexpr,
    DECAY: tl.constexpr,
    READS: tl.constexpr,
    PART: tl.constexpr,
    KEEP: tl.constexpr,
    ALONE: tl.constexpr,
    C: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCKS: tl.constexpr,
    BK: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    real: tl.constexpr,
):
    """S through the chunks of a segment, and y. The other parts compute the last S only.

    `ALONE` computes the inverses and the scores as well, in place of `prepare`.
    """
    segment, i = tl.program_id(0).to(tl.int64), tl.arange(0, C)
    m, first = segment // SEGMENTS, tl.program_id(0) % SEGMENTS * CUT
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    if PART == WHOLE:
        S = load_state(S_first + segment * V * K, rows, K, V, DECAY, BLOCKS, BK, real)
    else:
        S = diagonal(rows, K, 1.0 if PART == MAP else 0.0, DECAY, BLOCKS, BK, ROWS, real)
    for n in range(first, tl.minimum(first + CUT, N)):
        at, left, place = (m // H * T + n * C) * H + m % H, T - n * C, m * N + n
        k_, v_, a_ = k + at * K, v + at * V, a + at * F
        if PART == WHOLE and KEEP:
            store_state(starts + place * V * K, rows, K, V, S, DECAY, BLOCKS, BK)
        if ALONE:
            inverse, kq = alone(
                q + at * K, k_, e + at * K, a_, left, H, K, ERASES, DECAY, READS, C, LEVELS, BLOCKS, BK, PRECISION, real
            )
        else:
            inverse = load(inverses + place * C * C, i, i, C, 1, C, C, real) if ERASES else 0.0
        u = written(
            S, v_, e + at * K, a_, inverse, rows, left, H, K, V, ERASES, DECAY, C, BLOCKS, BK, ROWS, PRECISION, real,
            PART != MAP,
        )  # fmt: skip
        if PART == WHOLE:
            if not ALONE:
                kq = load(scores + place * C * C, i, i, C, 1, C, C, real)
            y_ = read(S, q + at * K, a_, left, H, K, DECAY, READS, C, BLOCKS, BK, ROWS, PRECISION, real)
            store(y + at * V, rows, i, 1, H * V, V, left, y_ + product(u, kq, PRECISION))
        S = add(S, u, k_, a_, left, H, K, DECAY, TO_END, True, C, BLOCKS, BK, PRECISION, real)
    store_state(S_last + segment * V * K, rows, K, V, S, DECAY, BLOCKS, BK)


@triton.jit
def back_through(
    d_S, d_read, qk, inverse, q, k, e, a, left, H, K, ERASES: tl.constexpr, DECAY: tl.constexpr, READS: tl.constexpr,
    C: tl.constexpr, BLOCKS: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
    real: tl.constexpr,
):  # fmt: skip
    """The gradients of v and of the S before a chunk, from those of its reads and of the S after it.

    `qk` and `inverse` are `[later step, earlier step]`.
    """
    d_u = read(d_S, k, a, left, H, K, DECAY, TO_END, C, BLOCKS, BK, ROWS, PRECISION, real)
    d_u += product(d_read, qk, PRECISION)
    d_S = add(d_S, d_read, q, a, left, H, K, DECAY, READS, True, C, BLOCKS, BK, PRECISION, real)
    if ERASES:
        d_u = product(d_u, inverse, PRECISION)
        d_S = add(d_S, -d_u, e, a, left, H, K, DECAY, -ERASES, False, C, BLOCKS, BK, PRECISION, real)
    return d_u, d_S


@triton.jit(do_not_specialize=["T", "H", "N", "CUT", "SEGMENTS"])
def walk_back(
    q,
    k,
    e,
    a,
    inverses,
    scores,
    d_y,
    d_last,
    d_v,
    d_ends,
    d_first,
    T,
    H,
    N,
    CUT,
    SEGMENTS,
    K: tl.constexpr,
    V: tl.constexpr,
    F: tl.constexpr,
    ERASES: tl.constexpr,
    DECAY: tl.constexpr,
    READS: tl.constexpr,
    PART: tl.constexpr,
    C: tl.constexpr,
    BLOCKS: tl.constexpr,
    BK: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    real: tl.constexpr,
):
    """The gradients of the S after every chunk of a segment, of its first S, and of v.

    `PART` `WRITTEN` computes the gradient of the first S only, without the S that comes after the segment.
    """
    segment, i = tl.program_id(0).to(tl.int64), tl.arange(0, C)
    m, first = segment // SEGMENTS, tl.program_id(0) % SEGMENTS * CUT
    rows, last = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.minimum(first + CUT, N) - 1
    if PART == WHOLE:
        d_S = load_state(d_last + segment * V * K, rows, K, V, DECAY, BLOCKS, BK, real)
    else:
        d_S = diagonal(rows, K, 0.0, DECAY, BLOCKS, BK, ROWS, real)
    for n_back in range(0, last + 1 - first):
        n = last - n_back
        at, left, place = (m // H * T + n * C) * H + m % H, T - n * C, m * N + n
        a_ = a + at * F
        if PART == WHOLE:
            store_state(d_ends + place * V * K, rows, K, V, d_S, DECAY, BLOCKS, BK)
        qk = load(scores + place * C * C, i, i, 1, C, C, C, real)
        inverse = load(inverses + place * C * C, i, i, 1, C, C, C, real) if ERASES else 0.0
        d_read = load(d_y + at * V, rows, i, 1, H * V, V, left, real)
        d_u, d_S = back_through(
            d_S, d_read, qk, inverse, q + at * K, k + at * K, e + at * K, a_, left, H, K,
            ERASES, DECAY, READS, C, BLOCKS, BK, ROWS, PRECISION, real,
        )  # fmt: skip
        if PART == WHOLE:
            store(d_v + at * V, rows, i, 1, H * V, V, left, d_u)
    store_state(d_first + segment * V * K, rows, K, V, d_S, DECAY, BLOCKS, BK)


@triton.jit(do_not_specialize=["SEGMENTS"])
def join(
    S, written_S, maps, firsts, SEGMENTS, K: tl.constexpr, V: tl.constexpr, DECAY: tl.constexpr, BACK: tl.constexpr,
    BLOCKS: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """The S before every segment: S M + W for the M of `maps` and the W of `written_S`.

    With `BACK`, S is the gradient of the S after the last segment. The result is that of the S after every segment.
    """
    m, rows = tl.program_id(0).to(tl.int64), tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    x = load_state(S + m * V * K, rows, K, V, DECAY, BLOCKS, BK, real)
    for n in range(0, SEGMENTS):
        segment = m * SEGMENTS + (SEGMENTS - 1 - n if BACK else n)
        store_state(firsts + segment * V * K, rows, K, V, x, DECAY, BLOCKS, BK)
        new, M = (), maps + segment * K * K
        for block in tl.static_range(BLOCKS):
            to = columns_of(block, K, DECAY, BLOCKS, BK)
            tile = load(written_S + segment * V * K, rows, to, K, 1, V, K, real)
            for other in tl.static_range(BLOCKS):
                of = columns_of(other, K, DECAY, BLOCKS, BK)
                tile += product(x[other], load(M, of, to, 1 if BACK else K, K if BACK else 1, K, K, real), PRECISION)
            new = new + (tile,)  # noqa: RUF005
        x = new


@triton.jit(do_not_specialize=["T", "H", "N"])
def gradients(
    q,
    k,
    e,
    a,
    starts,
    d_ends,
    u,
    d_y,
    d_v,
    d_q,
    d_k,
    d_e,
    d_a,
    T,
    H,
    N,
    K: tl.constexpr,
    V: tl.constexpr,
    F: tl.constexpr,
    ERASES: tl.constexpr,
    DECAY: tl.constexpr,
    READS: tl.constexpr,
    C: tl.constexpr,
    BLOCKS: tl.constexpr,
    BK: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    real: tl.constexpr,
):
    """The gradients of q, k, e and a of one chunk, from the S before it, the gradient of the S after it, u and d_v."""
    place = tl.program_id(0).to(tl.int64)
    m, n = place // N, place % N
    at, left = (m // H * T + n * C) * H + m % H, T - n * C
    q, k, e, a, S, d_S = q + at * K, k + at * K, e + at * K, a + at * F, starts + place * V * K, d_ends + place * V * K
    chunk_gradients(
        q, k, e, a, S, d_S, u + at * V, d_y + at * V, d_v + at * V,
        d_q + at * K, d_k + at * K, d_e + at * K, d_a + at * F, left, H, K, V,
        ERASES, DECAY, READS, C, BLOCKS, BK, ROWS, PRECISION, real,
    )  # fmt: skip


@triton.jit(do_not_specialize=["T", "H", "N"])
def back(
    q, k, e, v, a, starts, u, d_y, d_last, d_ends, d_first, d_q, d_k, d_e, d_v, d_a, T, H, N, K: tl.constexpr,
    V: tl.constexpr, F: tl.constexpr, ERASES: tl.constexpr, DECAY: tl.constexpr, READS: tl.constexpr, C: tl.constexpr,
    LEVELS: tl.constexpr, BLOCKS: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
    real: tl.constexpr,
):  # fmt: skip
    """All gradients of a short sequence of one head, whose S has at most `ROWS` rows: the backward pass in one launch.

    Per chunk, this is the work of `prepare`, `walk_back` and `gradients`.
    """
    m, i, rows = tl.program_id(0).to(tl.int64), tl.arange(0, C), tl.arange(0, ROWS)
    d_S = load_state(d_last + m * V * K, rows, K, V, DECAY, BLOCKS, BK, real)
    for n_back in range(0, N):
        n = N - 1 - n_back
        at, left, place = (m // H * T + n * C) * H + m % H, T - n * C, m * N + n
        q_, k_, e_, v_, a_, S_ = q + at * K, k + at * K, e + at * K, v + at * V, a + at * F, starts + place * V * K
        u_, d_y_, d_v_, d_end = u + at * V, d_y + at * V, d_v + at * V, d_ends + place * V * K
        inverse, kq = alone(q_, k_, e_, a_, left, H, K, ERASES, DECAY, READS, C, LEVELS, BLOCKS, BK, PRECISION, real)
        S = load_state(S_, rows, K, V, DECAY, BLOCKS, BK, real)
        wrote = written(
            S, v_, e_, a_, inverse, rows, left, H, K, V, ERASES, DECAY, C, BLOCKS, BK, ROWS, PRECISION, real
        )
        store(u_, rows, i, 1, H * V, V, left, wrote)
        store_state(d_end, rows, K, V, d_S, DECAY, BLOCKS, BK)
        d_read = load(d_y_, rows, i, 1, H * V, V, left, real)
        d_u, d_S = back_through(
            d_S, d_read, tl.trans(kq), tl.trans(inverse), q_, k_, e_, a_, left, H, K,
            ERASES, DECAY, READS, C, BLOCKS, BK, ROWS, PRECISION, real,
        )  # fmt: skip
        store(d_v_, rows, i, 1, H * V, V, left, d_u)
        tl.debug_barrier()  # other threads read u, d_v and the gradient of the S after the chunk
        chunk_gradients(
            q_, k_, e_, a_, S_, d_end, u_, d_y_, d_v_, d_q + at * K, d_k + at * K, d_e + at * K, d_a + at * F,
            left, H, K, V, ERASES, DECAY, READS, C, BLOCKS, BK, ROWS, PRECISION, real,
        )  # fmt: skip
    store_state(d_first + m * V * K, rows, K, V, d_S, DECAY, BLOCKS, BK)


@triton.jit
def chunk_gradients(
    q, k, e, a, S, d_S, u, d_y, d_v, d_q, d_k, d_e, d_a, left, H, K, V, ERASES: tl.constexpr, DECAY: tl.constexpr,
    READS: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """Stores the gradients of q, k, e and a of one chunk. S, its gradient d_S, u and d_v are in memory."""
    d_kq, d_ke = score_gradients(u, d_y, d_v, left, H, V, ERASES, C, ROWS, PRECISION, real)
    if DECAY >= 3:
        gradients_of_coupled(
            q, k, e, a, S, d_S, u, d_y, d_v, d_kq, d_ke, d_q, d_k, d_e, d_a, left, H, K, V,
            ERASES, DECAY, READS, C, BLOCKS, BK, ROWS, PRECISION, real,
        )  # fmt: skip
    elif DECAY == 2:
        gradients_by_column(
            q, k, e, a, S, d_S, u, d_y, d_v, d_kq, d_ke, d_q, d_k, d_e, d_a, left, H, K, V,
            ERASES, READS, C, BLOCKS, BK, ROWS, PRECISION, real,
        )  # fmt: skip
    else:
        gradients_by_products(
            q, k, e, a, S, d_S, u, d_y, d_v, d_kq, d_ke, d_q, d_k, d_e, d_a, left, H, K, V,
            ERASES, DECAY, READS, C, BLOCKS, BK, ROWS, PRECISION, real,
        )  # fmt: skip


@triton.jit
def score_gradients(
    u, d_y, d_u, left, H, V, ERASES: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
    real: tl.constexpr,
):  # fmt: skip
    """The gradients of the decayed scores, `[earlier step, later step]`: u d_y^T and -u d_u^T."""
    i = tl.arange(0, C)
    d_kq, d_ke = tl.zeros([C, C], real), tl.zeros([C, C], real)
    for first in range(0, V, ROWS):
        rows = first + tl.arange(0, ROWS)
        u_ = load(u, i, rows, H * V, 1, left, V, real)
        d_kq += product(u_, load(d_y, rows, i, 1, H * V, V, left, real), PRECISION)
        if ERASES:
            d_ke -= product(u_, load(d_u, rows, i, 1, H * V, V, left, real), PRECISION)
    return d_kq, d_ke


@triton.jit
def columns_of_both(S, d_S, columns, K, V, BK: tl.constexpr, ROWS: tl.constexpr, real: tl.constexpr):
    """The sums of S * d_S over the rows, `[BK]`."""
    total = tl.zeros([BK], real)
    for first in range(0, V, ROWS):
        rows = first + tl.arange(0, ROWS)
        total += tl.sum(load(S, rows, columns, K, 1, V, K, real) * load(d_S, rows, columns, K, 1, V, K, real), 0)
    return total


@triton.jit
def gradients_by_products(
    q, k, e, a, S, d_S, u, d_y, d_u, d_kq, d_ke, d_q, d_k, d_e, d_a, left, H, K, V,
    ERASES: tl.constexpr, DECAY: tl.constexpr, READS: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr,
    BK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """The gradients where all columns decay together."""
    kq = d_kq * between(a, left, H, DECAY, READS, C, real)
    ke = d_ke * between(a, left, H, DECAY, -ERASES, C, real)
    d_until, d_chunk_decay = key_gradient(
        q, k, e, a, S, d_S, u, kq, ke, d_k, left, H, K, V, ERASES, DECAY, C, BLOCKS, BK, ROWS, PRECISION, real
    )
    d_since = reader_gradient(
        q, k, a, S, d_y, tl.trans(kq), d_q, left, H, K, V, DECAY, READS, 1.0, C, BLOCKS, BK, ROWS, PRECISION, real
    )
    d_before = d_since
    if ERASES:
        d_before = reader_gradient(
            e,
            k,
            a,
            S,
            d_u,
            tl.trans(ke),
            d_e,
            left,
            H,
            K,
            V,
            DECAY,
            -ERASES,
            -1.0,
            C,
            BLOCKS,
            BK,
            ROWS,
            PRECISION,
            real,
        )
    if DECAY == 1:
        decay_gradient(
            q, k, e, a, d_kq, d_ke, d_until, d_chunk_decay, d_since, d_before, d_a, left, H, K,
            ERASES, READS, C, BLOCKS, BK, PRECISION, real,
        )  # fmt: skip


@triton.jit
def key_gradient(
    q, k, e, a, S, d_S, u, kq, ke, d_k, left, H, K, V, ERASES: tl.constexpr, DECAY: tl.constexpr, C: tl.constexpr,
    BLOCKS: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """Stores the gradient of the keys. Returns those of the decays until the end, and of the decay of the chunk."""
    i = tl.arange(0, C)
    d_until, d_chunk_decay = tl.zeros([C], real), tl.zeros([BK], real)
    for block in range(0, BLOCKS):
        columns = block * BK + tl.arange(0, BK)
        d = through_rows(u, d_S, columns, left, H, K, V, C, BK, ROWS, PRECISION, real)
        if DECAY == 1:
            d_until += tl.sum(d * load(k, i, columns, H * K, 1, left, K, real), 1)
            d_chunk_decay += columns_of_both(S, d_S, columns, K, V, BK, ROWS, real)
        d *= decays(a, columns, left, H, K, DECAY, TO_END, C, real)
        d += product(kq, load(q, i, columns, H * K, 1, left, K, real), PRECISION)
        if ERASES:
            d += product(ke, load(e, i, columns, H * K, 1, left, K, real), PRECISION)
        store(d_k, i, columns, H * K, 1, left, K, d)
    return d_until, tl.sum(d_chunk_decay, 0)


@triton.jit
def reader_gradient(
    x, k, a, S, d_read, xk, d_x, left, H, K, V, DECAY: tl.constexpr, READS: tl.constexpr, SIGN: tl.constexpr,
    C: tl.constexpr, BLOCKS: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
    real: tl.constexpr,
):  # fmt: skip
    """Stores the gradient of vectors x that read. Returns that of the decays from the start of the chunk."""
    i = tl.arange(0, C)
    d_since = tl.zeros([C], real)
    for block in range(0, BLOCKS):
        columns = block * BK + tl.arange(0, BK)
        d = through_rows(d_read, S, columns, left, H, K, V, C, BK, ROWS, PRECISION, real) * SIGN
        if DECAY == 1:
            d_since += tl.sum(d * load(x, i, columns, H * K, 1, left, K, real), 1)
        d *= decays(a, columns, left, H, K, DECAY, READS, C, real)
        d += product(xk, load(k, i, columns, H * K, 1, left, K, real), PRECISION)
        store(d_x, i, columns, H * K, 1, left, K, d)
    return d_since


@triton.jit
def decay_gradient(
    q, k, e, a, d_kq, d_ke, d_until, d_chunk_decay, d_since, d_before, d_a, left, H, K, ERASES: tl.constexpr,
    READS: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
    real: tl.constexpr,
):  # fmt: skip
    """Stores the gradient of decays of one number per step, without a division.

    The decay from step j to step i is the decay from j until before t, times a[t], times the decay from t to i. So
    `onto[j, t]` sums over the later steps i, and `before[j, t]` is the rest.
    """
    i = tl.arange(0, C)
    kq, ke = products_of_keys(q, k, e, left, H, K, ERASES, C, BLOCKS, BK, PRECISION, real)
    before, to_read = between(a, left, H, 1, -1, C, real), between(a, left, H, 1, READS, C, real)
    until = decays(a, i, left, H, K, 1, TO_END, C, real)
    onto = product(d_kq * kq, tl.trans(to_read), PRECISION) + tl.trans(until) * d_until[:, None]
    to_start = tl.sum(to_read * d_since[None, :], 1) + tl.sum(until, 1) * d_chunk_decay
    if ERASES:
        to_erase = between(a, left, H, 1, -ERASES, C, real)
        onto += product(d_ke * ke, tl.trans(to_erase), PRECISION)
        to_start += tl.sum(to_erase * d_before[None, :], 1)
    since = tl.sum(decays(a, i, left, H, K, 1, -1, C, real), 1)
    tl.store(d_a + i * H, tl.sum(onto * before, 0) + since * to_start, i < left)


@triton.jit
def gradients_by_column(
    q, k, e, a, S, d_S, u, d_y, d_u, d_kq, d_ke, d_q, d_k, d_e, d_a, left, H, K, V,
    ERASES: tl.constexpr, READS: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr, BK: tl.constexpr,
    ROWS: tl.constexpr, PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """The gradients where every column decays by itself."""
    i = tl.arange(0, C)
    for block in range(0, BLOCKS):
        columns = block * BK + tl.arange(0, BK)
        read_back = through_rows(d_y, S, columns, left, H, K, V, C, BK, ROWS, PRECISION, real)
        erased_back = read_back
        if ERASES:
            erased_back = -through_rows(d_u, S, columns, left, H, K, V, C, BK, ROWS, PRECISION, real)
        of_keys = through_rows(u, d_S, columns, left, H, K, V, C, BK, ROWS, PRECISION, real)
        of_start = columns_of_both(S, d_S, columns, K, V, BK, ROWS, real)
        dq, dk, de, da = block_gradients(
            q, k, e, a, columns, d_kq, d_ke, read_back, erased_back, of_keys, of_start, left, H, K,
            ERASES, ERASES if ERASES else 1, READS, C, BK, real,
        )  # fmt: skip
        store(d_q, i, columns, H * K, 1, left, K, dq)
        store(d_k, i, columns, H * K, 1, left, K, dk)
        store(d_a, i, columns, H * K, 1, left, K, da)
        if ERASES:
            store(d_e, i, columns, H * K, 1, left, K, de)


@triton.jit
def block_gradients(
    q, k, e, a, columns, d_kq, d_ke, read_back, erased_back, of_keys, of_start, left, H, K, ERASES: tl.constexpr,
    GROUP: tl.constexpr, READS: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """The gradients of q, k, e and a `[C, BK]`, for some columns.

    The loop goes back through the steps. Row j of `of_keys` is u[j] d_S[t], so that its row t is the gradient of k[t].
    `of_start` is the sum over the rows of S0 * d_S[t]. `keys` are those of earlier steps, decayed until before step t:
    S[t-1] = S0 * before + u^T keys. The gradient of the decay a[t] is the sum over the rows of S[t-1] * d_S[t].
    What reads before the group of step t reads `keys_before`. Its gradients wait for the first step of the group.
    """
    i = tl.arange(0, C)
    k_, after = load(k, i, columns, H * K, 1, left, K, real), factors(a, columns, TO_END, left, H, K, 2, C, real)
    before = decays(a, columns, left, H, K, 2, -GROUP, C, real)
    dq = read_back * decays(a, columns, left, H, K, 2, READS, C, real)
    dk, da, de = tl.zeros([C, BK], real), tl.zeros([C, BK], real), erased_back * before
    keys_wait, start_waits = tl.zeros([C, BK], real), tl.zeros([BK], real)
    for back in range(0, C):
        t = C - 1 - back
        is_t, q_ = i[:, None] == t, vector(q, columns, t, left, H, K, 0.0, real)[None, :]
        a_, of_q = vector(a, columns, t, left, H, K, 1.0, real), column_of(d_kq, t, C)[:, None]
        keys, keys_before = keys_until(k_, after, t, C), keys_until(k_, after, t // GROUP * GROUP, C)
        if READS == AFTER:
            of_keys += of_q * q_
            of_start += row_of(read_back * q_, t, C)
        dk += tl.where(is_t, of_keys, 0.0)
        da += tl.where(is_t, (tl.sum(keys * of_keys, 0) + row_of(before, t, C) * of_start)[None, :], 0.0)
        read_keys = tl.where(is_t, k_, keys * a_[None, :]) if READS == AFTER else keys_before
        dq += tl.where(is_t, tl.sum(of_q * read_keys, 0)[None, :], 0.0)
        if READS != AFTER:
            keys_wait += of_q * q_
            start_waits += row_of(read_back * q_, t, C)
        if ERASES:
            e_, of_e = vector(e, columns, t, left, H, K, 0.0, real)[None, :], column_of(d_ke, t, C)[:, None]
            de += tl.where(is_t, tl.sum(of_e * keys_before, 0)[None, :], 0.0)
            keys_wait += of_e * e_
            start_waits += row_of(erased_back * e_, t, C)
        of_keys, of_start = of_keys * a_[None, :], of_start * a_
        if t % GROUP == 0:
            of_keys, of_start = of_keys + keys_wait, of_start + start_waits
            keys_wait, start_waits = tl.zeros([C, BK], real), tl.zeros([BK], real)
    return dq, dk, de, da


@triton.jit
def keys_until(k, after, t, C: tl.constexpr):
    """The keys `[C, BK]` of the steps before step t, decayed until before it."""
    step = tl.arange(0, C)[:, None]
    return tl.where(step < t, k * tl.cumprod(tl.where(step + 1 < t, after, 1.0), 0, reverse=True), 0.0)
