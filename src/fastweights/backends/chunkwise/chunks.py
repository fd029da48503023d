"""Chunks of time as matrix products, for states that are affine in themselves.

A state S `[R, K]` decays, every step writes vectors u to keys, and some of the u depend on what is erased:

    S[i] = S[i-1] diag(decay[i]) + sum_r u[i,r] key[i,r]^T,     u[i,r] = value[i,r] - S[i-1] erase[i,r]

Inside a chunk of C steps, with d[i,j] the products of the decays after step j up to step i and c[i] those from the
start of the chunk,

    S[i] = S0 diag(c[i]) + sum_{j<=i} u[j] (d[i,j] * key[j])^T.

Inserting this into u gives one unit lower triangular system per chunk, (I + A) u = value - (c * erase) S0^T with
A[i,j] = erase[i] . (d[i-1,j] * key[j]). It is solved for all chunks at once, for the part without S0 and for the part
linear in S0. Only S0 is passed from chunk to chunk. This is the WY form of Bischof and Van Loan 1987, used for the
delta rule by Yang et al. 2024 (Parallelizing Linear Transformers with the Delta Rule), Sec. 3.

Vectors q over the columns read S q, and vectors p over the rows read p S. Once S0 is known, u is known for all steps,
and p reads (p S0) diag(c[i]) + sum_j (p . u[j]) (d[i,j] * key[j]).

A decay is none, one factor per step, or one per column and step. In the last case d[i,j] does not factor out of the
product of two vectors. The steps are then halved recursively. Where a later half meets an earlier one, the decay since
the middle multiplies the later vector, and the decay until the middle the earlier one. There is no division, and no
product has other factors than the decays between two steps, so that underflow is exact. In place of a factor per
column, a step may have a matrix that mixes blocks of columns.

Rows that decay by themselves, S <- diag(b) S diag(a) + u key^T, erase nothing. Where a later half meets an earlier one,
the values u decay like the keys. These reads are computed after state passing, like those of vectors over the rows.

The backward pass of more than one block of time keeps the inputs and one state per chunk.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from fastweights.backends.chunkwise.chunk_maps import ChunkMaps, add_product, written
from fastweights.backends.chunkwise.decay import ColumnDecay, Decay, lower, sums_decayed_both_ways
from fastweights.backends.chunkwise.factors import Columns
from fastweights.backends.chunkwise.state_passing import state_passing_for, walk, walk_back

BLOCK = 1 << 20
"""Entries of the keys and values of a block of chunks, 4 MB in float32: intermediate results stay in the cache."""


class Writes(NamedTuple):
    """n writes u key^T per step, with u = value - S erase or, without `erase`, u = value; all `[N, M, C, n, ...]`."""

    keys: Tensor
    erase: Tensor | None
    values: Tensor


class Across(NamedTuple):
    """Vectors over the rows that read, `[N, M, C, n, R]`, whether each reads after the step, and the offsets
    `[N, M, C, n, K]` of what they read."""

    vectors: Tensor
    after: tuple[bool, ...]
    offsets: Tensor | None


class Chunks(NamedTuple):
    """N chunks of C steps, all `[N, M, C, ...]` with M the heads of all members.

    There are one or two kinds of writes, those that erase first. `queries` are the vectors that read along the columns,
    `[N, M, C, n, K]`. `after` has an entry per vector: whether it reads after the step. `offsets` `[N, M, C, n, R]` are
    added to what is read. None where no vector reads along the columns, or none `across` them. `rows` is the decay of
    the rows, None for none; that of the columns is then one by column as well.
    """

    decay: Decay
    writes: tuple[Writes, ...]
    queries: Tensor | None
    after: tuple[bool, ...]
    offsets: Tensor | None
    across: Across | None
    factors: Columns
    rows: ColumnDecay | None


class Reads(NamedTuple):
    """The reads of vectors over the columns, `[..., n, R]`, and over the rows, `[..., n, K]`; None for none."""

    along: Tensor | None
    across: Tensor | None

    def map(self, function: Callable[[Tensor], Tensor]) -> "Reads":
        """The reads with `function` applied to each tensor."""
        return Reads(*(None if x is None else function(x) for x in self))


Coefficients = Callable[[Sequence[Tensor], Sequence[Tensor], int], Chunks]
"""The chunks, from tensors cut into chunks `[N, B, H, C, ...]`, tensors without time, and the number of steps that fill
up the last chunk."""


class ChunkedScan(NamedTuple):
    """A scan: tensors over time `[B, T, ...]`, the values that fill up the last chunk, and tensors without time."""

    coefficients: Coefficients
    time: tuple[Tensor, ...]
    fills: tuple[float, ...]
    constant: tuple[Tensor, ...]
    size: int
    numbers: int
    """Entries of the keys and values of one step, over all members and heads."""


def scan(chunked: ChunkedScan, S: Tensor) -> tuple[Reads, Tensor]:
    """The reads of every step, `[B, T, H, ...]`, and the last S, from the first S `[B, H, R, K]`."""
    B, H = S.shape[:2]
    if torch.compiler.is_compiling() or (len(_blocks(chunked)) == 1 and not state_passing_for(S.device.type).IS_FUSED):
        # There is little to keep; or a compiler decides what to keep and what to recompute.
        reads, _, last = _scan_block(S.flatten(0, 1), chunked, chunked.time, chunked.constant)
        reads = reads.map(lambda read: _unchunked(read, B, chunked.size))
    else:
        *both, last = CheckpointedScan.apply(chunked, B, S.flatten(0, 1), *chunked.time, *chunked.constant)
        reads = Reads(*both)
    T = chunked.time[0].shape[1]
    return reads.map(lambda read: read.flatten(1, 2)[:, :T]), last.unflatten(0, (B, H))


def chunk_size(T: int, K: int) -> int:
    """The number of steps per chunk, a power of two: the fastest on CPUs, and less for a shorter sequence."""
    return min(16 if K <= 16 else 32 if K < 256 else 64, 1 << (T - 1).bit_length())


def _maps(x: Chunks) -> ChunkMaps:
    d = x.decay
    ends = _joined([_flat(d.until(w.keys)) for w in x.writes])
    if x.rows is not None:
        (own,) = x.writes
        return ChunkMaps(
            None, None, x.rows.chunk_decay.mT * d.chunk_decay, None, _flat(x.rows.until(own.values)), ends, x.factors
        )
    values, keys = _solve(x.writes, d)
    if x.queries is None:
        return ChunkMaps(None, None, d.chunk_decay, keys, values, ends, x.factors)
    queries, base = _reads(x, x.queries, values, keys)
    base = base if x.offsets is None else base + _flat(x.offsets)
    return ChunkMaps(queries, base, d.chunk_decay, keys, values, ends, x.factors)


def _reads(x: Chunks, q: Tensor, values: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
    """The part linear in S0 and the other part of what all vectors q read, `[N, M, C n, ...]`."""
    if len({*x.after}) == 1:
        return _read(q, x.after[0], x, values, keys)
    place = sorted(range(len(x.after)), key=lambda n: x.after[n])  # those before the step, then those after it
    kinds = []
    for is_after in (False, True):
        chosen = [n for n in place if x.after[n] == is_after]
        parts = _read(q[..., chosen, :], is_after, x, values, keys)
        kinds.append([y.unflatten(-2, (-1, len(chosen))) for y in parts])
    back = [place.index(n) for n in range(len(place))]
    queries, base = (_flat(torch.cat(parts, -2)[..., back, :]) for parts in zip(*kinds, strict=True))
    return queries, base


def _read(q: Tensor, after: bool, x: Chunks, values: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same for vectors `[N, M, C, n, K]` that all read after their steps, or all before."""
    d = x.decay
    scores, queries = [d.scores(q, w.keys, after) for w in x.writes], _flat(d.since(q, after))
    if keys is not None:
        queries = add_product(queries, scores[0], keys)
    return queries, _joined(scores, -1) @ values


def _solve(writes: Sequence[Writes], d: Decay) -> tuple[Tensor, Tensor | None]:
    """`values` and `keys` such that the written vectors are u = values + keys S0^T."""
    values = [_flat(w.values) for w in writes]
    (own, erase, _), *rest = writes
    if erase is None:
        return values[0], None
    for other, value in zip(rest, values[1:], strict=True):
        values[0] = values[0] - d.scores(erase, other.keys, False) @ value
    inverse = UnitLowerInverse.apply(d.scores(erase, own, False))
    return _joined([inverse @ values[0], *values[1:]]), (inverse @ _flat(d.since(erase, False))).neg_()


def _flat(x: Tensor) -> Tensor:
    """`[..., C, n, K]` -> `[..., C n, K]`."""
    return x.flatten(-3, -2)


def _joined(parts: Sequence[Tensor], dim: int = -2) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


def _late_reads(x: Chunks, maps: ChunkMaps, starts: Tensor) -> Reads:
    """The reads that are computed from the S before every chunk, after state passing."""
    if x.rows is None:
        return Reads(None, _across_reads(x, maps, starts))
    assert isinstance(x.decay, ColumnDecay)
    (own,), along, across = x.writes, None, None
    if x.queries is not None:
        vectors = Across(x.queries, x.after, x.offsets)
        along = _decayed_both_ways(vectors, own.keys, own.values, x.decay, x.rows, starts)
    if x.across is not None:
        across = _decayed_both_ways(x.across, own.values, own.keys, x.rows, x.decay, starts.mT)
    return Reads(along, across)


def _decayed_both_ways(
    vectors: Across, keys: Tensor, values: Tensor, columns: ColumnDecay, rows: ColumnDecay, starts: Tensor
) -> Tensor:
    """The reads of vectors over the columns of an S whose rows and columns decay, `[N, M, C n, R]`."""
    reads = []
    for n, after in enumerate(vectors.after):
        x = vectors.vectors[..., n : n + 1, :]
        read = rows.carried((columns.since(x, after).squeeze(-2) @ starts.mT).unsqueeze(-2), after)
        reads.append(read + sums_decayed_both_ways(x, keys, values, after, columns, rows))
    read = torch.cat(reads, -2)
    return _flat(read if vectors.offsets is None else read + vectors.offsets)


def _across_reads(x: Chunks, maps: ChunkMaps, starts: Tensor) -> Tensor | None:
    """The reads of vectors over the rows, `[N, M, C n, K]`, in chunks that start with `starts`."""
    if x.across is None:
        return None
    counts = [w.keys.shape[-3] * w.keys.shape[-2] for w in x.writes]
    all_written = written(maps.values, maps.keys, starts).split(counts, -2)
    reads = []
    for n, after in enumerate(x.across.after):
        p = x.across.vectors[..., n, :]
        read = x.decay.carried((p @ starts).unsqueeze(-2), after).squeeze(-2)
        for u, w in zip(all_written, x.writes, strict=True):
            read = read + x.decay.spread(p @ u.mT, w.keys, after)
        reads.append(read)
    read = torch.stack(reads, -2)
    return _flat(read if x.across.offsets is None else read + x.across.offsets)


def _scan_block(
    S: Tensor, chunked: ChunkedScan, time: Sequence[Tensor], constant: Sequence[Tensor]
) -> tuple[Reads, Tensor, Tensor]:
    """The reads of every step, `[N, M, C n, ...]`, the S before every chunk, `[N, M, R, K]`, and the last S."""
    chunks = _chunks(chunked, time, constant)
    maps = _maps(chunks)
    starts, last = walk(S, maps)
    reads = _late_reads(chunks, maps, starts)
    if maps.queries is not None and maps.base is not None:
        reads = reads._replace(along=add_product(maps.base, maps.queries, starts.mT))
    return reads, starts, last


def _chunks(chunked: ChunkedScan, time: Sequence[Tensor], constant: Sequence[Tensor]) -> Chunks:
    """The chunks of a block of time. Steps that fill up the last chunk erase and write nothing."""
    T = time[0].shape[1]
    cut = [_cut(x, chunked.size, fill) for x, fill in zip(time, chunked.fills, strict=True)]
    return chunked.coefficients(cut, constant, -T % chunked.size)


def _cut(x: Tensor, size: int, fill: float) -> Tensor:
    """`[B, T, H, ...]` -> `[N, B, H, size, ...]`."""
    missing = -x.shape[1] % size
    x = pad(x, [0, 0] * (x.ndim - 2) + [0, missing], value=fill) if missing else x
    return x.unflatten(1, (-1, size)).movedim((1, 3), (0, 2)).contiguous()


def _unchunked(x: Tensor, B: int, C: int) -> Tensor:
    """`[N, B H, C n, R]` -> `[B, N, C, H, n, R]`."""
    return x.unflatten(1, (B, -1)).unflatten(3, (C, -1)).movedim((0, 3), (1, 2))


def _chunked(x: Tensor) -> Tensor:
    """The inverse of `_unchunked`."""
    return x.movedim((1, 2), (0, 3)).flatten(3, 4).flatten(1, 2).contiguous()


class CheckpointedScan(torch.autograd.Function):
    """The scan, keeping its inputs and the S before every chunk. The backward pass recomputes the rest.

    Both passes run through time in blocks of chunks that stay in the cache. Only S and its gradient are passed from
    chunk to chunk. Given those, the chunks are independent, and autograd differentiates the maps of a block at once.
    """

    @staticmethod
    def forward(
        ctx: Any, chunked: ChunkedScan, B: int, S: Tensor, *tensors: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor]:
        time, constant = tensors[: len(chunked.time)], tensors[len(chunked.time) :]
        whole, starts, chunks = None, [], -(-time[0].shape[1] // chunked.size)
        for block in _blocks(chunked):
            reads, block_starts, S = _scan_block(S, chunked, [x[:, block] for x in time], constant)
            reads, first = reads.map(lambda read: _unchunked(read, B, chunked.size)), block.start // chunked.size
            whole = whole or reads.map(lambda read: read.new_empty(B, chunks, *read.shape[2:]))
            for place, part in zip(whole, reads, strict=True):
                if place is not None and part is not None:
                    place[:, first : first + len(block_starts)] = part
            starts.append(block_starts)
        ctx.scan, ctx.blocks = chunked._replace(time=(), constant=()), _blocks(chunked)
        ctx.save_for_backward(*starts, *tensors)
        assert whole is not None
        return *whole, S

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_along: Tensor | None, d_across: Tensor | None, d_S: Tensor) -> tuple[Any, ...]:
        starts, tensors = ctx.saved_tensors[: len(ctx.blocks)], ctx.saved_tensors[len(ctx.blocks) :]
        count, needs_gradient = len(ctx.scan.fills), ctx.needs_input_grad[3:]
        time, constant = tensors[:count], tensors[count:]
        # A block has its own part of the tensors over time. The others collect gradients from all blocks.
        empty = [torch.empty_like(x) for x in time] + [torch.zeros_like(x) for x in constant]
        gradients = [x if wants else None for x, wants in zip(empty, needs_gradient, strict=True)]
        for block, block_starts in reversed(list(zip(ctx.blocks, starts, strict=True))):
            part, first = [x[:, block] for x in time], block.start // ctx.scan.size
            chunks = slice(first, first + len(block_starts))
            d_reads = Reads(d_along, d_across).map(lambda d, chunks=chunks: _chunked(d[:, chunks]))  # type: ignore[misc]
            d_block, d_S = _block_gradients(ctx.scan, part, constant, needs_gradient, block_starts, d_reads, d_S)
            for n, d in d_block.items():
                whole = gradients[n]
                assert whole is not None
                if n < count:
                    whole[:, block] = d
                else:
                    whole.add_(d)
        return None, None, d_S, *gradients


def _blocks(chunked: ChunkedScan) -> list[slice]:
    """Blocks of whole chunks of time, each with at most `BLOCK` entries of keys and values."""
    T = chunked.time[0].shape[1]
    steps = chunked.size * max(1, BLOCK // (chunked.size * chunked.numbers))
    return [slice(start, min(start + steps, T)) for start in range(0, T, steps)]


def _block_gradients(
    chunked: ChunkedScan,
    time: Sequence[Tensor],
    constant: Sequence[Tensor],
    needs_gradient: Sequence[bool],
    starts: Tensor,
    d_reads: Reads,
    d_S: Tensor,
) -> tuple[dict[int, Tensor], Tensor]:
    """The gradients of the inputs of a block and of the S before it, from those of its reads and of the S after it."""
    leaves = [x.detach().requires_grad_(wants) for x, wants in zip((*time, *constant), needs_gradient, strict=True)]
    with torch.enable_grad():
        chunks = _chunks(chunked, leaves[: len(time)], leaves[len(time) :])
        maps, block_starts = _maps(chunks), starts.detach().requires_grad_()
        late = _late_reads(chunks, maps, block_starts)
    late_reads = [(read, d) for read, d in zip(late, d_reads, strict=True) if read is not None]
    d_starts = None
    if late_reads:
        outputs, d_outputs = zip(*late_reads, strict=True)
        (d_starts,) = torch.autograd.grad(outputs, block_starts, d_outputs, retain_graph=True)
    d_maps, d_S = walk_back(maps, starts, None if maps.queries is None else d_reads.along, d_S, d_starts)
    both = [*zip(maps, d_maps, strict=True), *late_reads]
    graph = [(m, d) for m, d in both if isinstance(m, Tensor) and m.requires_grad]
    chosen = {n: leaf for n, leaf in enumerate(leaves) if leaf.requires_grad}
    if not graph or not chosen:
        return {n: torch.zeros_like(leaf) for n, leaf in chosen.items()}, d_S
    outputs, d_outputs = zip(*graph, strict=True)
    gradients = torch.autograd.grad(outputs, list(chosen.values()), d_outputs, materialize_grads=True)
    return dict(zip(chosen, gradients, strict=True)), d_S


SOLVERS = ("cpu", "cuda")
"""Types of devices with a triangular solver that is known to work in PyTorch. Others invert by matrix products."""


def _solved(A: Tensor) -> Tensor:
    identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    # From the right: on CPUs twice as fast as from the left, with the same result.
    return torch.linalg.solve_triangular(A, identity, upper=False, left=False, unitriangular=True)


def inverse_by_blocks(A: Tensor) -> Tensor:
    """(I + the part of A below the diagonal)^-1 for A `[..., C, C]`, by matrix products alone.

    The size of inverted blocks on the diagonal doubles in every step, as in

        [[P, 0], [Q, R]]^-1 = [[P^-1, 0], [-R^-1 Q P^-1, R^-1]]
    """
    C, size = A.shape[-1], 1 << (A.shape[-1] - 1).bit_length()
    A = torch.nn.functional.pad(A, (0, size - C, 0, size - C))
    inverse = torch.ones_like(A[..., :1])[..., None]
    while (half := inverse.shape[-1]) < size:
        blocks = A.unflatten(-1, (-1, 2, half)).unflatten(-4, (-1, 2, half))[..., 1, :, :, 0, :]
        Q = blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
        P, R = inverse[..., ::2, :, :], inverse[..., 1::2, :, :]
        top, bottom = torch.cat([P, torch.zeros_like(P)], -1), torch.cat([-R @ Q @ P, R], -1)
        inverse = torch.cat([top, bottom], -2)
    return inverse[..., 0, :C, :C]


class UnitLowerInverse(torch.autograd.Function):
    """(I + the part of A below the diagonal)^-1, with a backward pass of two products instead of a second solve."""

    @staticmethod
    def forward(ctx: Any, A: Tensor) -> Tensor:
        inverse = _solved(A) if A.device.type in SOLVERS else inverse_by_blocks(A)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return inverse.mT @ grad @ inverse.mT * -lower(inverse, -1)
