"""Chunk kernels for two states that mix, such as a memory and the momentum of its writes.

The states are side by side, S = [S0 S1]. Each has K / 2 columns. In place of a decay, a step has a matrix A `[2, 2]`:

    S0[t] = A[0,0] S0[t-1] + A[0,1] S1[t-1] + u[t] k0[t]^T,     S1[t] = A[1,0] S0[t-1] + A[1,1] S1[t-1] + u[t] k1[t]^T

With `DECAY` 3 a step has one matrix, with `DECAY` 4 it has a matrix for every column. Matrices are tuples of their four
entries, by rows. Entries are tiles `[C, 1]` or `[C, BK]`. The other names are those of `tiles.py`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="assignment"
import triton
import triton.language as tl

from fastweights.backends.chunkwise.triton.tiles import (
    AFTER,
    TO_END,
    column_of,
    load,
    product,
    row_of,
    store,
    through_rows,
)


@triton.jit
def push(A, x0, x1):
    """A (x0, x1): the states of the next step."""
    return A[0] * x0 + A[1] * x1, A[2] * x0 + A[3] * x1


@triton.jit
def pull(A, x0, x1):
    """A^T (x0, x1): the vectors that read from S before a step what x0 and x1 read after it."""
    return A[0] * x0 + A[2] * x1, A[1] * x0 + A[3] * x1


@triton.jit
def later_on_the_right(a0, a1, a2, a3, b0, b1, b2, b3):
    """The product b a of two matrices."""
    return b0 * a0 + b1 * a2, b0 * a1 + b1 * a3, b2 * a0 + b3 * a2, b2 * a1 + b3 * a3


@triton.jit
def later_on_the_left(a0, a1, a2, a3, b0, b1, b2, b3):
    """The product a b of two matrices."""
    return a0 * b0 + a1 * b2, a0 * b1 + a1 * b3, a2 * b0 + a3 * b2, a2 * b1 + a3 * b3


@triton.jit
def entry(a, n: tl.constexpr, columns, step, inside, H, K, DECAY: tl.constexpr, real: tl.constexpr):
    """Entry n of the matrices of some steps, and that of the identity outside."""
    if DECAY == 3:
        x = tl.load(a + (step * H * 4 + n)[:, None], inside[:, None], 1.0 if n % 3 == 0 else 0.0)
    else:
        is_loaded = inside[:, None] & (columns[None, :] < K // 2)
        at = step[:, None] * H * 2 * K + n * (K // 2) + columns[None, :]
        x = tl.load(a + at, is_loaded, 1.0 if n % 3 == 0 else 0.0)
    return x.to(real)


@triton.jit
def matrices(a, columns, step, inside, H, K, DECAY: tl.constexpr, real: tl.constexpr):
    """The matrices of some steps, for some columns of a state."""
    return (
        entry(a, 0, columns, step, inside, H, K, DECAY, real),
        entry(a, 1, columns, step, inside, H, K, DECAY, real),
        entry(a, 2, columns, step, inside, H, K, DECAY, real),
        entry(a, 3, columns, step, inside, H, K, DECAY, real),
    )


@triton.jit
def matrices_until(
    a, columns, until, PLACE: tl.constexpr, left, H, K, DECAY: tl.constexpr, C: tl.constexpr, real: tl.constexpr
):
    """The products of the matrices of a stretch of time for every step. The steps from `until` on have the identity."""
    step = tl.arange(0, C) + PLACE
    inside = (step >= 0) & (step < left) & (step < until)
    A = matrices(a, columns, step, inside, H, K, DECAY, real)
    if PLACE == TO_END:
        A = tl.associative_scan(A, 0, later_on_the_left, reverse=True)
    else:
        A = tl.associative_scan(A, 0, later_on_the_right)
    return A


@triton.jit
def both(x, columns, left, H, K, C: tl.constexpr, real: tl.constexpr):
    """The vectors of a chunk, for some columns of each state."""
    i, inside = tl.arange(0, C), columns < K // 2
    x0 = load(x, i, tl.where(inside, columns, K), H * K, 1, left, K, real)
    x1 = load(x, i, tl.where(inside, K // 2 + columns, K), H * K, 1, left, K, real)
    return x0, x1


@triton.jit
def store_both(x, columns, left, H, K, values, C: tl.constexpr):
    """Stores vectors of a chunk, for some columns of each state."""
    i, inside = tl.arange(0, C), columns < K // 2
    store(x, i, tl.where(inside, columns, K), H * K, 1, left, K, values[0])
    store(x, i, tl.where(inside, K // 2 + columns, K), H * K, 1, left, K, values[1])


@triton.jit
def both_at(x, columns, t, left, H, K, real: tl.constexpr):
    """The vector of step t, for some columns of each state, `[1, BK]`."""
    inside, at = (columns < K // 2) & (t < left), x + (t * H * K + columns)
    x0, x1 = tl.load(at, inside, 0.0).to(real), tl.load(at + K // 2, inside, 0.0).to(real)
    return x0[None, :], x1[None, :]


@triton.jit
def matrix_at(a, columns, t, left, H, K, DECAY: tl.constexpr, real: tl.constexpr):
    """The matrix of step t. Its entries are `[1, 1]` or `[1, BK]`."""
    step = t + tl.arange(0, 1)
    return matrices(a, columns, step, step < left, H, K, DECAY, real)


@triton.jit
def moved(x, a, columns, left, H, K, DECAY: tl.constexpr, PLACE: tl.constexpr, C: tl.constexpr, real: tl.constexpr):
    """The vectors of a chunk: keys at the end of the chunk, or vectors that read at its start."""
    x0, x1 = both(x, columns, left, H, K, C, real)
    A = matrices_until(a, columns, C, PLACE, left, H, K, DECAY, C, real)
    if PLACE == TO_END:
        x0, x1 = push(A, x0, x1)
    else:
        x0, x1 = pull(A, x0, x1)
    return x0, x1


@triton.jit
def read_coupled(
    S, x, a, left, H, K, DECAY: tl.constexpr, PLACE: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr,
    BK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """S x^T `[ROWS, C]` for the vectors x of a chunk."""
    result = tl.zeros([ROWS, C], real)
    for block in tl.static_range(BLOCKS // 2):
        columns = block * BK + tl.arange(0, BK)
        x0, x1 = moved(x, a, columns, left, H, K, DECAY, PLACE, C, real)
        result += product(S[block], tl.trans(x0), PRECISION)
        result += product(S[BLOCKS // 2 + block], tl.trans(x1), PRECISION)
    return result


@triton.jit
def add_coupled(
    S, u, x, a, left, H, K, DECAY: tl.constexpr, PLACE: tl.constexpr, WHOLE: tl.constexpr, C: tl.constexpr,
    BLOCKS: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """S + u x for u `[ROWS, C]`. With `WHOLE`, the matrices of the chunk are applied to S first."""
    new0, new1 = (), ()
    for block in tl.static_range(BLOCKS // 2):
        columns = block * BK + tl.arange(0, BK)
        S0, S1 = S[block], S[BLOCKS // 2 + block]
        if WHOLE:
            S0, S1 = through_chunk(S0, S1, a, columns, left, H, K, DECAY, PLACE == TO_END, C, real)
        x0, x1 = moved(x, a, columns, left, H, K, DECAY, PLACE, C, real)
        new0 = new0 + (S0 + product(u, x0, PRECISION),)  # noqa: RUF005
        new1 = new1 + (S1 + product(u, x1, PRECISION),)  # noqa: RUF005
    return new0 + new1


@triton.jit
def through_chunk(
    S0, S1, a, columns, left, H, K, DECAY: tl.constexpr, FORWARD: tl.constexpr, C: tl.constexpr, real: tl.constexpr
):
    """Some columns of both states after a chunk, or of their gradients before it."""
    A = matrices_until(a, columns, C, AFTER, left, H, K, DECAY, C, real)
    last = rows_of(A, C - 1, C)
    if FORWARD:
        S0, S1 = push(last, S0, S1)
    else:
        S0, S1 = pull(last, S0, S1)
    return S0, S1


@triton.jit
def rows_of(A, t, C: tl.constexpr):
    """The matrix of step t, from those of all steps. Its entries are `[1, 1]` or `[1, BK]`."""
    return (
        row_of(A[0], t, C)[None, :],
        row_of(A[1], t, C)[None, :],
        row_of(A[2], t, C)[None, :],
        row_of(A[3], t, C)[None, :],
    )


@triton.jit
def scores_of_coupled(
    q, k, e, a, left, H, K, ERASES: tl.constexpr, DECAY: tl.constexpr, READS: tl.constexpr, C: tl.constexpr,
    BLOCKS: tl.constexpr, BK: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """The scores of a chunk: products with keys that go from step to step."""
    i = tl.arange(0, C)
    kq, ke = tl.zeros([C, C], real), tl.zeros([C, C], real)
    for block in range(0, BLOCKS // 2):
        columns = block * BK + tl.arange(0, BK)
        keys0, keys1 = tl.zeros([C, BK], real), tl.zeros([C, BK], real)
        for t in range(0, C):
            is_t = i[None, :] == t
            q0, q1 = both_at(q, columns, t, left, H, K, real)
            if ERASES:
                e0, e1 = both_at(e, columns, t, left, H, K, real)
                ke += tl.where(is_t, tl.sum(keys0 * e0 + keys1 * e1, 1)[:, None], 0.0)
            if READS != AFTER:
                kq += tl.where(is_t, tl.sum(keys0 * q0 + keys1 * q1, 1)[:, None], 0.0)
            keys0, keys1 = push(matrix_at(a, columns, t, left, H, K, DECAY, real), keys0, keys1)
            k0, k1 = both_at(k, columns, t, left, H, K, real)
            keys0, keys1 = tl.where(i[:, None] == t, k0, keys0), tl.where(i[:, None] == t, k1, keys1)
            if READS == AFTER:
                kq += tl.where(is_t, tl.sum(keys0 * q0 + keys1 * q1, 1)[:, None], 0.0)
    return kq, ke


@triton.jit
def through_both(
    x, S, columns, left, H, K, V, C: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
    real: tl.constexpr,
):  # fmt: skip
    """x S for the vectors x `[C, V]` of a chunk, for some columns of each state."""
    inside = columns < K // 2
    x0 = through_rows(x, S, tl.where(inside, columns, K), left, H, K, V, C, BK, ROWS, PRECISION, real)
    x1 = through_rows(x, S, tl.where(inside, K // 2 + columns, K), left, H, K, V, C, BK, ROWS, PRECISION, real)
    return x0, x1


@triton.jit
def start_gradients(S, d_S, columns, K, V, BK: tl.constexpr, ROWS: tl.constexpr, real: tl.constexpr):
    """The sums of d_S * S over the rows `[1, BK]`, for each state of d_S and each of S."""
    inside = columns < K // 2
    first, second = tl.where(inside, columns, K), tl.where(inside, K // 2 + columns, K)
    G0, G1, G2, G3 = tl.zeros([BK], real), tl.zeros([BK], real), tl.zeros([BK], real), tl.zeros([BK], real)
    for start in range(0, V, ROWS):
        rows = start + tl.arange(0, ROWS)
        S0, S1 = load(S, rows, first, K, 1, V, K, real), load(S, rows, second, K, 1, V, K, real)
        d0, d1 = load(d_S, rows, first, K, 1, V, K, real), load(d_S, rows, second, K, 1, V, K, real)
        G0, G1, G2, G3 = (
            G0 + tl.sum(d0 * S0, 0),
            G1 + tl.sum(d0 * S1, 0),
            G2 + tl.sum(d1 * S0, 0),
            G3 + tl.sum(d1 * S1, 0),
        )
    return G0[None, :], G1[None, :], G2[None, :], G3[None, :]


@triton.jit
def gradients_of_coupled(
    q, k, e, a, S, d_S, u, d_y, d_u, d_kq, d_ke, d_q, d_k, d_e, d_a, left, H, K, V,
    ERASES: tl.constexpr, DECAY: tl.constexpr, READS: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr,
    BK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """The gradients where two states mix."""
    total = (tl.zeros([C], real), tl.zeros([C], real), tl.zeros([C], real), tl.zeros([C], real))
    for block in range(0, BLOCKS // 2):
        columns = block * BK + tl.arange(0, BK)
        y = through_both(d_y, S, columns, left, H, K, V, C, BK, ROWS, PRECISION, real)
        erased = y
        if ERASES:
            erased = through_both(d_u, S, columns, left, H, K, V, C, BK, ROWS, PRECISION, real)
        of_keys = through_both(u, d_S, columns, left, H, K, V, C, BK, ROWS, PRECISION, real)
        of_start = start_gradients(S, d_S, columns, K, V, BK, ROWS, real)
        dq, dk, de, da = coupled_block_gradients(
            q,
            k,
            e,
            a,
            columns,
            d_kq,
            d_ke,
            y,
            erased,
            of_keys,
            of_start,
            left,
            H,
            K,
            ERASES,
            DECAY,
            READS,
            C,
            BK,
            real,
        )
        store_both(d_q, columns, left, H, K, dq, C)
        store_both(d_k, columns, left, H, K, dk, C)
        if ERASES:
            store_both(d_e, columns, left, H, K, de, C)
        if DECAY == 4:
            for n in tl.static_range(4):
                store(d_a + n * (K // 2), tl.arange(0, C), columns, H * 2 * K, 1, left, K // 2, da[n])
        total = (
            total[0] + tl.sum(da[0], 1), total[1] + tl.sum(da[1], 1),
            total[2] + tl.sum(da[2], 1), total[3] + tl.sum(da[3], 1),
        )  # fmt: skip
    if DECAY == 3:
        for n in tl.static_range(4):
            tl.store(d_a + tl.arange(0, C) * H * 4 + n, total[n], tl.arange(0, C) < left)


@triton.jit
def plus(x, y):
    """The sums of two pairs of tiles."""
    return x[0] + y[0], x[1] + y[1]


@triton.jit
def at_step(is_t, x):
    """A pair of tiles, 0 outside of step t."""
    return tl.where(is_t, x[0], 0.0), tl.where(is_t, x[1], 0.0)


@triton.jit
def outer(x, y):
    """The products of two pairs, by rows."""
    return x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1]


@triton.jit
def plus_matrix(A, B):
    """A + B."""
    return A[0] + B[0], A[1] + B[1], A[2] + B[2], A[3] + B[3]


@triton.jit
def reading(of_keys, of_start, scores, x, read, t, C: tl.constexpr):
    """The gradients of the keys and of the start, plus those of vectors x that read. `read` is x S0 of all steps."""
    of_keys = plus(of_keys, (scores * x[0], scores * x[1]))
    rows = (row_of(read[0], t, C)[None, :], row_of(read[1], t, C)[None, :])
    return of_keys, plus_matrix(of_start, outer(x, rows))


@triton.jit
def keys_before(k, a, columns, t, left, H, K, DECAY: tl.constexpr, C: tl.constexpr, real: tl.constexpr):
    """The keys of the steps before step t, at the time before it."""
    A = matrices_until(a, columns, t, TO_END, left, H, K, DECAY, C, real)
    return at_step(tl.arange(0, C)[:, None] < t, push(A, k[0], k[1]))


@triton.jit
def sums_with(scores, x):
    """The sums of two tiles over the rows with weights, `[1, BK]`."""
    return tl.sum(scores * x[0], 0)[None, :], tl.sum(scores * x[1], 0)[None, :]


@triton.jit
def coupled_block_gradients(
    q, k, e, a, columns, d_kq, d_ke, y, erased, of_keys, of_start, left, H, K, ERASES: tl.constexpr,
    DECAY: tl.constexpr, READS: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, real: tl.constexpr,
):  # fmt: skip
    """The gradients of q, k, e and a, for some columns: see `block_gradients` in `chunk_kernels.py`."""
    i, zero = tl.arange(0, C), tl.zeros([C, BK], real)
    k_ = both(k, columns, left, H, K, C, real)
    before = matrices_until(a, columns, C, -1, left, H, K, DECAY, C, real)
    to_read = matrices_until(a, columns, C, READS, left, H, K, DECAY, C, real)
    dq, de, dk = push(to_read, y[0], y[1]), push(before, -erased[0], -erased[1]), (zero, zero)
    da = (zero, zero, zero, zero)
    for back in range(0, C):
        t = C - 1 - back
        is_t, q_ = i[:, None] == t, both_at(q, columns, t, left, H, K, real)
        A, of_q = matrix_at(a, columns, t, left, H, K, DECAY, real), column_of(d_kq, t, C)[:, None]
        keys = keys_before(k_, a, columns, t, left, H, K, DECAY, C, real)
        read_keys = keys
        if READS == AFTER:
            of_keys, of_start = reading(of_keys, of_start, of_q, q_, y, t, C)
            after = push(A, keys[0], keys[1])
            read_keys = (tl.where(is_t, k_[0], after[0]), tl.where(is_t, k_[1], after[1]))
        dk = plus(dk, at_step(is_t, of_keys))
        dq = plus(dq, at_step(is_t, sums_with(of_q, read_keys)))
        da = plus_matrix(da, matrix_gradient(is_t, of_keys, keys, of_start, rows_of(before, t, C)))
        of_keys, of_start = pull(A, of_keys[0], of_keys[1]), pull_rows(A, of_start)
        if READS != AFTER:
            of_keys, of_start = reading(of_keys, of_start, of_q, q_, y, t, C)
        if ERASES:
            of_e, e_ = column_of(d_ke, t, C)[:, None], both_at(e, columns, t, left, H, K, real)
            de = plus(de, at_step(is_t, sums_with(of_e, keys)))
            of_keys, of_start = reading(of_keys, of_start, of_e, e_, (-erased[0], -erased[1]), t, C)
    return dq, dk, de, da


@triton.jit
def pull_rows(A, G):
    """A^T G for a matrix G."""
    first, second = pull(A, G[0], G[2]), pull(A, G[1], G[3])
    return first[0], second[0], first[1], second[1]


@triton.jit
def matrix_gradient(is_t, of_keys, keys, of_start, before):
    """The gradient of the matrix of step t: entry (m, b) sums d_S of state m times S of state b before the step.

    `of_start` has that sum for the S at the start of the chunk, and `before` leads from there until before the step.
    """
    of_first = push(before, of_start[0], of_start[1])
    of_second = push(before, of_start[2], of_start[3])
    return (
        tl.where(is_t, tl.sum(of_keys[0] * keys[0], 0)[None, :] + of_first[0], 0.0),
        tl.where(is_t, tl.sum(of_keys[0] * keys[1], 0)[None, :] + of_first[1], 0.0),
        tl.where(is_t, tl.sum(of_keys[1] * keys[0], 0)[None, :] + of_second[0], 0.0),
        tl.where(is_t, tl.sum(of_keys[1] * keys[1], 0)[None, :] + of_second[1], 0.0),
    )
