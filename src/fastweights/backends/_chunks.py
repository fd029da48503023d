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

from fastweights.backends._fading import Fading, fading, lower

BLOCK = 1 << 20
"""Numbers in the keys and values of a block of chunks, 4 MB in float32: what is made of them stays near the cache."""


class Writes(NamedTuple):
    """u key^T with u = value - S erase, n of them a step, or u = value where nothing is erased: `[N, M, C, n, ...]`."""

    keys: Tensor
    erase: Tensor | None
    values: Tensor


class Chunks(NamedTuple):
    """N chunks of C steps, all `[N, M, C, ...]` with M the heads of all members: what fades, is written and is read.

    Those that erase come first among the writes, of which there are one or two kinds. For every vector that reads,
    `[N, M, C, n, K]`, there is whether it does so `after` the step; `offsets` `[N, M, C, n, R]` are added to what is
    read.
    """

    decay: Tensor | None
    writes: tuple[Writes, ...]
    queries: Tensor
    after: tuple[bool, ...]
    offsets: Tensor | None


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


def scan(over: Over, S: Tensor) -> tuple[Tensor, Tensor]:
    """What every step reads, `[B, T, H, n, R]`, and the last S; the first one is `[B, H, R, K]`."""
    B, H = S.shape[:2]
    if len(_blocks(over)) == 1 or torch.compiler.is_compiling():
        # Little to keep; or a compiler, which decides by itself what to keep and what to compute again.
        read, _, last = _scan_block(S.flatten(0, 1), over, over.time, over.still)
        read = _unchunked(read, B, over.size)
    else:
        read, last = CheckpointedScan.apply(over, B, S.flatten(0, 1), *over.time, *over.still)
    return read.flatten(1, 2)[:, : over.time[0].shape[1]], last.unflatten(0, (B, H))


def chunk_size(T: int, K: int) -> int:
    """A power of two: 16 steps for keys up to 16, else 32, the fastest on CPU; less for a shorter sequence."""
    return min(16 if K <= 16 else 32, 1 << (T - 1).bit_length())


class Maps(NamedTuple):
    """What every chunk does with the S that it starts with, for all chunks at once.

    It reads `base + queries S^T`, writes u = `values + keys S^T`, where only the first vectors have keys, and ends with
    `S * kept + u^T ends`.
    """

    queries: Tensor
    base: Tensor
    kept: Tensor | float
    keys: Tensor | None
    values: Tensor
    ends: Tensor


def _maps(x: Chunks) -> Maps:
    d = fading(x.decay, x.queries)
    values, keys = _solve(x.writes, d)
    ends = _joined([_flat(d.until(w.keys)) for w in x.writes])
    queries, base = _reads(x, d, values, keys)
    base = base if x.offsets is None else base + _flat(x.offsets)
    return Maps(queries, base, d.kept, keys, values, ends)


def _reads(x: Chunks, d: Fading, values: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
    """What all vectors read of S0, and of what is written, `[N, M, C n, ...]`."""
    if len({*x.after}) == 1:
        return _read(x.queries, x.after[0], x, d, values, keys)
    place = sorted(range(len(x.after)), key=lambda n: x.after[n])  # those before the step, then those after it
    kinds = []
    for is_after in (False, True):
        chosen = [n for n in place if x.after[n] == is_after]
        found = _read(x.queries[..., chosen, :], is_after, x, d, values, keys)
        kinds.append([y.unflatten(-2, (-1, len(chosen))) for y in found])
    back = [place.index(n) for n in range(len(place))]
    queries, base = (_flat(torch.cat(parts, -2)[..., back, :]) for parts in zip(*kinds, strict=True))
    return queries, base


def _read(q: Tensor, after: bool, x: Chunks, d: Fading, values: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same of vectors `[N, M, C, n, K]` that read after the steps, or before."""
    scores, queries = [d.scores(q, w.keys, after) for w in x.writes], _flat(d.since(q, after))
    if keys is not None:
        queries = _plus(queries, scores[0], keys)
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


def _plus(base: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """base + x y in one pass, over any leading axes."""
    return torch.baddbmm(*(z.flatten(0, -3) for z in (base, x, y))).unflatten(0, base.shape[:-2])


def _flat(x: Tensor) -> Tensor:
    """`[..., C, n, K]` -> `[..., C n, K]`."""
    return x.flatten(-3, -2)


def _joined(parts: Sequence[Tensor], dim: int = -2) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


def _scan_block(
    S: Tensor, over: Over, time: Sequence[Tensor], still: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """What every step reads, `[N, M, C n, R]`, the S before every chunk, `[N, M, R, K]`, and the last one."""
    maps = _maps(_made(over, time, still))
    starts, last = _walk(S, maps)
    return _plus(maps.base, maps.queries, starts.mT), starts, last


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


class CheckpointedScan(torch.autograd.Function):
    """The scan, keeping what goes in and the S before every chunk, and computing the rest again on the way back.

    It goes through time in blocks of chunks that stay near the cache. Only S and its gradient walk from chunk to chunk;
    given those, the chunks are independent, and autograd takes the maps of a block at once.
    """

    @staticmethod
    def forward(ctx: Any, over: Over, B: int, S: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        time, still = given[: len(over.time)], given[len(over.time) :]
        reads, starts, chunks = None, [], -(-time[0].shape[1] // over.size)
        for block in _blocks(over):
            read, came, S = _scan_block(S, over, [x[:, block] for x in time], still)
            read, first = _unchunked(read, B, over.size), block.start // over.size
            reads = read.new_empty(B, chunks, *read.shape[2:]) if reads is None else reads
            reads[:, first : first + len(came)] = read
            starts.append(came)
        ctx.over, ctx.blocks = over._replace(time=(), still=()), _blocks(over)
        ctx.save_for_backward(*starts, *given)
        assert reads is not None
        return reads, S

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_reads: Tensor, d_S: Tensor) -> tuple[Any, ...]:
        starts, given = ctx.saved_tensors[: len(ctx.blocks)], ctx.saved_tensors[len(ctx.blocks) :]
        moving, wanted = len(ctx.over.fills), ctx.needs_input_grad[3:]
        time, still = given[:moving], given[moving:]
        # Blocks are parts of what moves; what stands still collects from all of them.
        empty = [torch.empty_like(x) for x in time] + [torch.zeros_like(x) for x in still]
        gradients = [x if wants else None for x, wants in zip(empty, wanted, strict=True)]
        for block, came in reversed(list(zip(ctx.blocks, starts, strict=True))):
            stretch, first = [x[:, block] for x in time], block.start // ctx.over.size
            d_read = d_reads[:, first : first + len(came)].movedim((1, 2), (0, 3)).flatten(3, 4).flatten(1, 2)
            d_given, d_S = _block_gradients(ctx.over, stretch, still, wanted, came, d_read, d_S)
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
    d_read: Tensor,
    d_S: Tensor,
) -> tuple[dict[int, Tensor], Tensor]:
    """The gradients of what goes into a block and of the S before it, from those of what it read and of the S after."""
    leaves = [x.detach().requires_grad_(wants) for x, wants in zip((*time, *still), wanted, strict=True)]
    with torch.enable_grad():
        maps = _maps(_made(over, leaves[: len(time)], leaves[len(time) :]))
    d_maps, d_S = _walk_back(maps, starts, d_read.contiguous(), d_S)
    graph = [(m, d) for m, d in zip(maps, d_maps, strict=True) if isinstance(m, Tensor) and m.requires_grad]
    chosen = {n: leaf for n, leaf in enumerate(leaves) if leaf.requires_grad}
    if not graph or not chosen:
        return {n: torch.zeros_like(leaf) for n, leaf in chosen.items()}, d_S
    outputs, d_outputs = zip(*graph, strict=True)
    found = torch.autograd.grad(outputs, list(chosen.values()), d_outputs, materialize_grads=True)
    return dict(zip(chosen, found, strict=True)), d_S


def _walk(S: Tensor, maps: Maps) -> tuple[Tensor, Tensor]:
    """Carries S from chunk to chunk; returns the S before every chunk, and the last."""
    starts = []
    for kept, keys, values, ends in _each(maps.kept, maps.keys, maps.values, maps.ends):
        starts.append(S)
        S = torch.baddbmm(_fade(S, kept), _written(values, keys, S).mT, ends)
    return torch.stack(starts), S


def _written(values: Tensor, keys: Tensor | None, S: Tensor) -> Tensor:
    """u of every step; only the first have keys."""
    if keys is None:
        return values
    count = keys.shape[-2]
    if count == values.shape[-2]:
        return _plus(values, keys, S.mT) if values.ndim > 3 else torch.baddbmm(values, keys, S.mT)
    return torch.cat([_written(values[..., :count, :], keys, S), values[..., count:, :]], -2)


@torch.no_grad()
def _walk_back(maps: Maps, starts: Tensor, d_read: Tensor, d_last: Tensor) -> tuple[Maps, Tensor]:
    """The gradients of the maps and of the first S: `_walk` and the reading, backwards."""
    d_S, d_written, d_afters = d_last, [], []
    count = 0 if maps.keys is None else maps.keys.shape[-2]
    for kept, keys, ends, queries, d_r in reversed(_each(maps.kept, maps.keys, maps.ends, maps.queries, d_read)):
        d_u = ends @ d_S.mT
        d_afters.append(d_S)
        d_written.append(d_u)
        d_S = torch.baddbmm(_fade(d_S, kept), d_r.mT, queries)
        if keys is not None:
            d_S = torch.baddbmm(d_S, d_u[:, :count].mT, keys)
    d_values, d_after = torch.stack(d_written[::-1]), torch.stack(d_afters[::-1])
    d_maps = Maps(
        queries=d_read @ starts,
        base=d_read,
        kept=_onto(maps.kept, d_after * starts) if isinstance(maps.kept, Tensor) else 0.0,
        keys=None if maps.keys is None else d_values[..., :count, :] @ starts,
        values=d_values,
        ends=_written(maps.values, maps.keys, starts) @ d_after,
    )
    return d_maps, d_S


def _onto(kept: Tensor, gradient: Tensor) -> Tensor:
    """Of one number a chunk, or of one a column."""
    return gradient.sum((-2, -1) if kept.shape[-1] == 1 else -2, keepdim=True)


def _fade(S: Tensor, kept: Tensor | float) -> Tensor:
    return kept * S if isinstance(kept, Tensor) else S


def _each(*maps: Any) -> list[tuple[Any, ...]]:
    """The maps chunk by chunk. unbind, since indexing would make a backward pass quadratic in T."""
    count = next(len(part) for part in maps if isinstance(part, Tensor))
    columns = [part.unbind(0) if isinstance(part, Tensor) else [part] * count for part in maps]
    return list(zip(*columns, strict=True))


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
