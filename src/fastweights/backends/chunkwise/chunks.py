"""Chunks of time as matrix products, for states that are affine in themselves.

A state S `[R, K]` fades, every step writes vectors u to keys, and some of the u depend on what is erased:

    S[i] = S[i-1] diag(decay[i]) + sum_r u[i,r] key[i,r]^T,     u[i,r] = value[i,r] - S[i-1] erase[i,r]

Inside a chunk of C steps, with d[i,j] the products of the decays after step j up to step i and c[i] those from the
start of the chunk,

    S[i] = S0 diag(c[i]) + sum_{j<=i} u[j] (d[i,j] * key[j])^T.

Putting that into u gives one unit lower triangular system a chunk, (I + A) u = value - (c * erase) S0^T with
A[i,j] = erase[i] . (d[i-1,j] * key[j]), which is solved for all chunks at once for the part without S0 and the part
linear in it. Only S0 walks from chunk to chunk. This is the WY form of Bischof and Van Loan 1987, used for the delta
rule by Yang et al. 2024 (Parallelizing Linear Transformers with the Delta Rule), Sec. 3.

Vectors q over the columns read S q, vectors p over the rows p S. With u given for all steps, since S0 is, the latter
sees sum_j (p . u[j]) (d[i,j] * key[j]) beside (p S0) diag(c[i]).

A decay is none, one number a step, or one a column. With one a column, d[i,j] does not leave the product of two
vectors. It is then taken apart where a half of the steps meets the other: what has faded since the middle goes to the
later vector, what fades until the middle to the earlier one, and the halves are cut in the same way. So nothing is
divided by, no product is of more than the decays between two steps, and one that underflows was to be as small.

Kept for the backward pass of more than a block of time: what goes in, and a state a chunk.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from fastweights.backends.chunkwise.decay import Fading, lower
from fastweights.backends.chunkwise.state_passing import Maps, in_one_launch, plus, walk, walk_back, written

BLOCK = 1 << 20
"""Numbers in the keys and values of a block of chunks, 4 MB in float32: what is made of them stays near the cache."""


class Writes(NamedTuple):
    """u key^T with u = value - S erase, n of them a step, or u = value where nothing is erased: `[N, M, C, n, ...]`."""

    keys: Tensor
    erase: Tensor | None
    values: Tensor


class Across(NamedTuple):
    """Vectors over the rows that read, `[N, M, C, n, R]`, whether each does so after the step, and what is added to
    what they read, `[N, M, C, n, K]`."""

    vectors: Tensor
    after: tuple[bool, ...]
    offsets: Tensor | None


class Chunks(NamedTuple):
    """N chunks of C steps, all `[N, M, C, ...]` with M the heads of all members: what fades, is written and is read.

    Those that erase come first among the writes, of which there are one or two kinds. For every vector that reads,
    `[N, M, C, n, K]`, there is whether it does so `after` the step; `offsets` `[N, M, C, n, R]` are added to what is
    read. None where no vector over the columns reads, or none `across` them.
    """

    fading: Fading
    writes: tuple[Writes, ...]
    queries: Tensor | None
    after: tuple[bool, ...]
    offsets: Tensor | None
    across: Across | None


class Reads(NamedTuple):
    """What vectors over the columns read, `[..., n, R]`, and vectors over the rows, `[..., n, K]`; None of none."""

    along: Tensor | None
    across: Tensor | None

    def map(self, function: Callable[[Tensor], Tensor]) -> "Reads":
        """The same of each."""
        return Reads(*(None if x is None else function(x) for x in self))


Coefficients = Callable[[Sequence[Tensor], Sequence[Tensor], int], Chunks]
"""From tensors over time, cut into chunks `[N, B, H, C, ...]`, others, and how many steps fill up the last chunk."""


class Over(NamedTuple):
    """A scan: tensors over time `[B, T, ...]` with what fills up the last chunk, others, and what is made of them."""

    coefficients: Coefficients
    time: tuple[Tensor, ...]
    fills: tuple[float, ...]
    still: tuple[Tensor, ...]
    size: int
    numbers: int
    """How many numbers of keys and values a step has, over all members and heads."""


def scan(over: Over, S: Tensor) -> tuple[Reads, Tensor]:
    """What every step reads, `[B, T, H, ...]`, and the last S; the first one is `[B, H, R, K]`."""
    B, H = S.shape[:2]
    if torch.compiler.is_compiling() or (len(_blocks(over)) == 1 and not in_one_launch(S)):
        # Little to keep; or a compiler, which decides by itself what to keep and what to compute again.
        reads, _, last = _scan_block(S.flatten(0, 1), over, over.time, over.still)
        reads = reads.map(lambda read: _unchunked(read, B, over.size))
    else:
        *found, last = CheckpointedScan.apply(over, B, S.flatten(0, 1), *over.time, *over.still)
        reads = Reads(*found)
    T = over.time[0].shape[1]
    return reads.map(lambda read: read.flatten(1, 2)[:, :T]), last.unflatten(0, (B, H))


def chunk_size(T: int, K: int) -> int:
    """A power of two: 16 steps for keys up to 16, else 32, the fastest on CPU; less for a shorter sequence."""
    return min(16 if K <= 16 else 32, 1 << (T - 1).bit_length())


def _maps(x: Chunks) -> Maps:
    d = x.fading
    values, keys = _solve(x.writes, d)
    ends = _joined([_flat(d.until(w.keys)) for w in x.writes])
    if x.queries is None:
        return Maps(None, None, d.kept, keys, values, ends)
    queries, base = _reads(x, x.queries, values, keys)
    base = base if x.offsets is None else base + _flat(x.offsets)
    return Maps(queries, base, d.kept, keys, values, ends)


def _reads(x: Chunks, q: Tensor, values: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
    """What all vectors q read of S0, and of what is written, `[N, M, C n, ...]`."""
    if len({*x.after}) == 1:
        return _read(q, x.after[0], x, values, keys)
    place = sorted(range(len(x.after)), key=lambda n: x.after[n])  # those before the step, then those after it
    kinds = []
    for is_after in (False, True):
        chosen = [n for n in place if x.after[n] == is_after]
        found = _read(q[..., chosen, :], is_after, x, values, keys)
        kinds.append([y.unflatten(-2, (-1, len(chosen))) for y in found])
    back = [place.index(n) for n in range(len(place))]
    queries, base = (_flat(torch.cat(parts, -2)[..., back, :]) for parts in zip(*kinds, strict=True))
    return queries, base


def _read(q: Tensor, after: bool, x: Chunks, values: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same of vectors `[N, M, C, n, K]` that read after the steps, or before."""
    d = x.fading
    scores, queries = [d.scores(q, w.keys, after) for w in x.writes], _flat(d.since(q, after))
    if keys is not None:
        queries = plus(queries, scores[0], keys)
    return queries, _joined(scores, -1) @ values


def _solve(writes: Sequence[Writes], d: Fading) -> tuple[Tensor, Tensor | None]:
    """`values` and `keys` such that the written vectors are u = values + keys S0^T."""
    values = [_flat(w.values) for w in writes]
    (own, erase, _), *rest = writes
    if erase is None:
        return values[0], None
    for other, given in zip(rest, values[1:], strict=True):
        values[0] = values[0] - d.scores(erase, other.keys, False) @ given
    inverse = UnitLowerInverse.apply(d.scores(erase, own, False))
    return _joined([inverse @ values[0], *values[1:]]), (inverse @ _flat(d.since(erase, False))).neg_()


def _flat(x: Tensor) -> Tensor:
    """`[..., C, n, K]` -> `[..., C n, K]`."""
    return x.flatten(-3, -2)


def _joined(parts: Sequence[Tensor], dim: int = -2) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


def _crossed(x: Chunks, maps: Maps, starts: Tensor) -> Tensor | None:
    """What vectors over the rows read, `[N, M, C n, K]`, in chunks that start with `starts`."""
    if x.across is None:
        return None
    counts = [w.keys.shape[-3] * w.keys.shape[-2] for w in x.writes]
    all_written = written(maps.values, maps.keys, starts).split(counts, -2)
    found = []
    for n, after in enumerate(x.across.after):
        p = x.across.vectors[..., n, :]
        read = x.fading.since((p @ starts).unsqueeze(-2), after).squeeze(-2)
        for u, w in zip(all_written, x.writes, strict=True):
            read = read + x.fading.spread(p @ u.mT, w.keys, after)
        found.append(read)
    read = torch.stack(found, -2)
    return _flat(read if x.across.offsets is None else read + x.across.offsets)


def _scan_block(S: Tensor, over: Over, time: Sequence[Tensor], still: Sequence[Tensor]) -> tuple[Reads, Tensor, Tensor]:
    """What every step reads, `[N, M, C n, ...]`, the S before every chunk, `[N, M, R, K]`, and the last one."""
    chunks = _made(over, time, still)
    maps = _maps(chunks)
    starts, last = walk(S, maps)
    along = None if maps.queries is None or maps.base is None else plus(maps.base, maps.queries, starts.mT)
    return Reads(along, _crossed(chunks, maps, starts)), starts, last


def _made(over: Over, time: Sequence[Tensor], still: Sequence[Tensor]) -> Chunks:
    """The chunks of a stretch of time; steps that fill up the last one erase and write nothing."""
    T = time[0].shape[1]
    cut = [_cut(x, over.size, fill) for x, fill in zip(time, over.fills, strict=True)]
    return over.coefficients(cut, still, -T % over.size)


def _cut(x: Tensor, size: int, fill: float) -> Tensor:
    """`[B, T, H, ...]` -> `[N, B, H, size, ...]`."""
    missing = -x.shape[1] % size
    x = pad(x, [0, 0] * (x.ndim - 2) + [0, missing], value=fill) if missing else x
    return x.unflatten(1, (-1, size)).movedim((1, 3), (0, 2)).contiguous()


def _unchunked(x: Tensor, B: int, C: int) -> Tensor:
    """`[N, B H, C n, R]` -> `[B, N, C, H, n, R]`."""
    return x.unflatten(1, (B, -1)).unflatten(3, (C, -1)).movedim((0, 3), (1, 2))


def _chunked(x: Tensor) -> Tensor:
    """The other way."""
    return x.movedim((1, 2), (0, 3)).flatten(3, 4).flatten(1, 2).contiguous()


class CheckpointedScan(torch.autograd.Function):
    """The scan, keeping what goes in and the S before every chunk, and computing the rest again on the way back.

    It goes through time in blocks of chunks that stay near the cache. Only S and its gradient walk from chunk to chunk;
    given those, the chunks are independent, and autograd takes the maps of a block at once.
    """

    @staticmethod
    def forward(ctx: Any, over: Over, B: int, S: Tensor, *given: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        time, still = given[: len(over.time)], given[len(over.time) :]
        whole, starts, chunks = None, [], -(-time[0].shape[1] // over.size)
        for block in _blocks(over):
            reads, came, S = _scan_block(S, over, [x[:, block] for x in time], still)
            reads, first = reads.map(lambda read: _unchunked(read, B, over.size)), block.start // over.size
            whole = whole or reads.map(lambda read: read.new_empty(B, chunks, *read.shape[2:]))
            for place, part in zip(whole, reads, strict=True):
                if place is not None and part is not None:
                    place[:, first : first + len(came)] = part
            starts.append(came)
        ctx.over, ctx.blocks = over._replace(time=(), still=()), _blocks(over)
        ctx.save_for_backward(*starts, *given)
        assert whole is not None
        return *whole, S

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_along: Tensor | None, d_across: Tensor | None, d_S: Tensor) -> tuple[Any, ...]:
        starts, given = ctx.saved_tensors[: len(ctx.blocks)], ctx.saved_tensors[len(ctx.blocks) :]
        moving, wanted = len(ctx.over.fills), ctx.needs_input_grad[3:]
        time, still = given[:moving], given[moving:]
        # Blocks are parts of what moves; what stands still collects from all of them.
        empty = [torch.empty_like(x) for x in time] + [torch.zeros_like(x) for x in still]
        gradients = [x if wants else None for x, wants in zip(empty, wanted, strict=True)]
        for block, came in reversed(list(zip(ctx.blocks, starts, strict=True))):
            stretch, first = [x[:, block] for x in time], block.start // ctx.over.size
            chunks = slice(first, first + len(came))
            d_reads = Reads(d_along, d_across).map(lambda d, chunks=chunks: _chunked(d[:, chunks]))  # type: ignore[misc]
            d_given, d_S = _block_gradients(ctx.over, stretch, still, wanted, came, d_reads, d_S)
            for n, d in d_given.items():
                whole = gradients[n]
                assert whole is not None
                if n < moving:
                    whole[:, block] = d
                else:
                    whole.add_(d)
        return None, None, d_S, *gradients


def _blocks(over: Over) -> list[slice]:
    """Stretches of time of whole chunks, with at most `BLOCK` numbers in the keys and values of each."""
    T = over.time[0].shape[1]
    steps = over.size * max(1, BLOCK // (over.size * over.numbers))
    return [slice(start, min(start + steps, T)) for start in range(0, T, steps)]


def _block_gradients(
    over: Over,
    time: Sequence[Tensor],
    still: Sequence[Tensor],
    wanted: Sequence[bool],
    starts: Tensor,
    d_reads: Reads,
    d_S: Tensor,
) -> tuple[dict[int, Tensor], Tensor]:
    """The gradients of what goes into a block and of the S before it, from those of what it read and of the S after."""
    leaves = [x.detach().requires_grad_(wants) for x, wants in zip((*time, *still), wanted, strict=True)]
    with torch.enable_grad():
        chunks = _made(over, leaves[: len(time)], leaves[len(time) :])
        maps, came = _maps(chunks), starts.detach().requires_grad_()
        crossed = _crossed(chunks, maps, came)
    d_starts = None
    if crossed is not None:
        (d_starts,) = torch.autograd.grad(crossed, came, d_reads.across, retain_graph=True)
    d_maps, d_S = walk_back(maps, starts, d_reads.along, d_S, d_starts)
    both = [*zip(maps, d_maps, strict=True), (crossed, d_reads.across)]
    graph = [(m, d) for m, d in both if isinstance(m, Tensor) and m.requires_grad]
    chosen = {n: leaf for n, leaf in enumerate(leaves) if leaf.requires_grad}
    if not graph or not chosen:
        return {n: torch.zeros_like(leaf) for n, leaf in chosen.items()}, d_S
    outputs, d_outputs = zip(*graph, strict=True)
    found = torch.autograd.grad(outputs, list(chosen.values()), d_outputs, materialize_grads=True)
    return dict(zip(chosen, found, strict=True)), d_S


class UnitLowerInverse(torch.autograd.Function):
    """(I + the part of A below the diagonal)^-1, with a backward pass of two products instead of a second solve."""

    @staticmethod
    def forward(ctx: Any, A: Tensor) -> Tensor:
        eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        # From the right: on CPU twice as fast as from the left, and of the same matrix.
        inverse = torch.linalg.solve_triangular(A, eye, upper=False, left=False, unitriangular=True)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return inverse.mT @ grad @ inverse.mT * -lower(inverse, -1)
