"""Chunks of time as matrix products, for cells with an affine form.

Inside a chunk of C steps, with d[i,j] the product of the decays after step j up to step i and c[i] the product from
the start of the chunk up to step i, every step writes a vector u[i] to its key:

    W[i] = c[i] W0 + sum_{j<=i} d[i,j] u[j] k[j]^T,     u[i] = write[i] v[i] - erase[i] W[i-1] k[i]

Putting the first into the second gives one unit lower triangular system a chunk, (I + A) u = write v - erase c W0 k
with A[i,j] = erase[i] d[i-1,j] k[i].k[j], which is solved for all chunks at once for the part without W0 and the part
linear in it. Only W0 walks from chunk to chunk. This is the WY form of Bischof and Van Loan 1987, used for the delta
rule by Yang et al. 2024 (Parallelizing Linear Transformers with the Delta Rule), Sec. 3, here with erase and decay.

Kept for the backward pass of more than a block of time: the inputs, and a state a chunk.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from fastweights.affine import Affine, Program
from fastweights.backends._transforms import transform
from fastweights.lengths import only
from fastweights.problem import Problem
from fastweights.state import where

SHORT = 64
"""Up to so many steps, nothing is computed twice."""
LARGE = {"sums": {"short": 10_000, "long": 1 << 16}, "other": {"short": 1 << 16, "long": 1 << 17}}
"""Numbers in the state of a head from which training is faster than by a compiled kernel, measured on CPUs: of memories
that only add up, and of others."""
BLOCK = 1 << 20
"""Numbers in the keys and values of a block of chunks, 4 MB in float32: what is made of them stays near the cache."""


class Chunks(NamedTuple):
    """A program cut into N chunks of C steps: q, k `[N, B H, C, K]`, v `[.., V]`, scalars `[.., 1]` or float."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor | float
    erase: Tensor | float
    write: Tensor | float


def refusal(problem: Problem, build: bool) -> str:
    """Why this backend cannot run the problem; empty if it can."""
    if problem.cell.affine is None:
        return f"{problem.cell.name} declares no affine form (see fastweights.affine)"
    return transform()


def cost(problem: Problem) -> float:
    """In the time of a compiled kernel: 3 to 20 were measured, but less than 1 where large states are trained on a CPU,
    since a chunk's states of the compiled kernel leave the cache."""
    return 0.8 if problem.inputs[0].device.type == "cpu" and _is_ahead(problem) else 5.0


def _is_ahead(problem: Problem) -> bool:
    """Whether it trains faster than a compiled kernel, on a CPU."""
    if torch.compiler.is_exporting():
        return False  # T may be any: nothing is asked of it.
    form, T = problem.cell.affine, problem.leading[1]
    trains = torch.is_grad_enabled() and any(leaf.requires_grad for leaf in problem.inputs)
    if form is None or not trains or T == 1:
        return False
    size = sum(leaf[0, 0].numel() for leaf in problem.state)
    length = "short" if T <= SHORT else "long"
    if size < LARGE["sums"][length]:
        return False
    scalars = form.program(problem.inputs).scalars
    sums = not isinstance(scalars.decay, Tensor) and not isinstance(scalars.erase, Tensor)
    return size >= LARGE["sums" if sums else "other"][length]


def run(problem: Problem) -> tuple[Tensor, Any]:
    """Runs the affine form of the cell chunk by chunk."""
    form, inside, left = problem.cell.affine, problem.inside, None
    assert form is not None
    program, state = form.program(problem.finite_inputs), problem.state
    if inside is not None:
        program = program._replace(scalars=_hold(program.scalars, inside, program.q))
    if problem.reset is not None:
        # At the first step a reset replaces the carried state, so that not even a NaN in it survives.
        state = where(problem.reset[:, 0], problem.initial, state)
        start = form.pack(problem.initial)
        if not problem.from_zero:
            program, left = _apart(start, program, problem.reset)
        program = program._replace(scalars=_cut_off(program.scalars, problem.reset, program.q))
    read, last = _scan(program, form.pack(state))
    if left is not None:
        read = read + left.unsqueeze(-1) * _apply(start, program.q)
        last = last + left[:, -1, :, None, None] * start
    y = form.read(read).to(problem.dtype)
    return y if inside is None else only(inside, y), form.unpack(last)


class Stretch(NamedTuple):
    """What a stretch of time does with any W `[B, H, V, K]`: reads `base + W queries`, ends with `W kept + written`."""

    base: Tensor  # [B, T, H, V]
    queries: Tensor  # [B, T, H, K]
    kept: Tensor  # [B, H, K, K]
    written: Tensor  # [B, H, V, K]


def stretch(program: Program, reset: Tensor | None = None) -> Stretch:
    """From W = 0 and, in further rows to which nothing is written, from W = I."""
    q, _, v, scalars = program
    B, _, H, K = q.shape
    V = v.shape[-1]
    rows = torch.cat([v.new_zeros(V, K), torch.eye(K, dtype=v.dtype, device=v.device)]).expand(B, H, V + K, K)
    program = program._replace(v=pad(v, (0, K)), scalars=scalars if reset is None else _cut_off(scalars, reset, q))
    read, last = _scan(program, rows)
    base, queries = read.split([V, K], dim=-1)
    written, kept = last.split([V, K], dim=-2)
    return Stretch(base, queries, kept, written)


def _scan(program: Program, W: Tensor) -> tuple[Tensor, Tensor]:
    """What every step reads, `[B, T, H, V]`, and the last W; the first one is `[B, H, V, K]`."""
    parts = (program.q, program.k, program.v, *program.scalars)
    size = _chunk_size(program.q.shape[1], program.q.shape[-1])
    if len(_blocks(parts, size)) == 1 or torch.compiler.is_compiling():
        # Little to keep; or a compiler, which decides by itself what to keep and what to compute again.
        read, _, last = _scan_block(W.flatten(0, 1), parts, size)
    else:
        read, last = CheckpointedScan.apply(size, W.flatten(0, 1), *parts)
    return read, last.unflatten(0, W.shape[:2])


def _chunk_size(T: int, K: int) -> int:
    """A power of two: 16 steps for keys up to 16, else 32, the fastest on CPU; less for a shorter sequence."""
    return min(16 if K <= 16 else 32, 1 << (T - 1).bit_length())


def _hold(scalars: Affine, inside: Tensor, like: Tensor) -> Affine:
    """Changes nothing where a sequence has ended: there decay is 1, erase and write are 0."""
    decay, erase, write = scalars
    return Affine(
        decay=only(inside, decay, 1.0) if isinstance(decay, Tensor) else decay,
        erase=only(inside, erase) if isinstance(erase, Tensor) else erase,
        write=only(inside, write if isinstance(write, Tensor) else like.new_full(like.shape[:3], write)),
    )


def _cut_off(scalars: Affine, reset: Tensor, like: Tensor) -> Affine:
    """Forgets everything before a reset: there decay and erase are 0."""
    keep = (~reset).to(like.dtype).unsqueeze(-1).expand(like.shape[:3])
    return Affine(scalars.decay * keep, scalars.erase * keep, scalars.write)


def _apart(start: Tensor, program: Program, reset: Tensor) -> tuple[Program, Tensor]:
    """A program for W - left start instead of W, and `left [B, T, H]`, what decays have left of the last reset's start.

    That difference is 0 after a reset, as chunks need it, and stays affine: with c = left[t-1], or 1 at a reset,
    W - decay c start <- (W - c start) (decay I - erase k k^T) + (write v - erase c start k) k^T.
    """
    _, k, v, (decay, erase, write) = program
    before, left = _left(decay, reset, program.q)
    v = _scaled(v, write) - _scaled(_apply(start, k), before * erase)
    return program._replace(v=v, scalars=Affine(decay, erase, 1.0)), left


def _scaled(x: Tensor, by: Tensor | float) -> Tensor:
    return x * (by.unsqueeze(-1) if isinstance(by, Tensor) else by)


def _apply(W: Tensor, x: Tensor) -> Tensor:
    """W x for every step: `[B, H, V, K]`, `[B, T, H, K]` -> `[B, T, H, V]`."""
    return torch.einsum("bhvk,bthk->bthv", W, x)


def _left(decay: Tensor | float, reset: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Products of all decays since the last reset, before and after every step, `[B, T, H]`; 0 if there was none.

    before[t] = a[t] before[t-1] + b[t] is a chain of maps: every round joins those of twice as many steps.
    """
    decays = decay if isinstance(decay, Tensor) else like.new_full(like.shape[:3], decay)
    began = reset.unsqueeze(-1).expand(decays.shape)
    a, before = torch.where(began, 0.0, _later(decays, 1)), began.to(like.dtype)
    joined = 1
    while joined < reset.shape[1]:
        a, before = a * _later(a, joined), before + a * _later(before, joined)
        joined *= 2
    return before, decays * before


def _later(x: Tensor, steps: int) -> Tensor:
    """`[B, T, H]` so many steps later, with zeros before it."""
    return pad(x[:, :-steps], (0, 0, steps, 0))


def _chunk(parts: Sequence[Any], size: int) -> Chunks:
    """Cuts `[B, T, H, .]` into `[N, B H, size, .]`; steps that fill up the last chunk write and erase nothing."""
    fills = Chunks(q=0.0, k=0.0, v=0.0, decay=1.0, erase=0.0, write=0.0)  # type: ignore[arg-type]
    return Chunks(*(_cut(part, size, fill) for part, fill in zip(parts, fills, strict=True)))


def _cut(x: Any, size: int, fill: Any = 0.0) -> Any:
    """Cuts one part, `[B, T, H, .]` or a scalar `[B, T, H]`; a constant stays as it is."""
    if not isinstance(x, Tensor):
        return x
    x = x if x.ndim == 4 else x.unsqueeze(-1)
    missing = -x.shape[1] % size
    x = pad(x, (0, 0, 0, 0, 0, missing), value=fill) if missing else x
    return x.unflatten(1, (-1, size)).permute(1, 0, 3, 2, 4).flatten(1, 2)


def _unchunk(x: Tensor, like: Tensor) -> Tensor:
    """Puts `[N, B H, C, V]` back into `[B, T, H, V]`."""
    B, T, H = like.shape[:3]
    return x.unflatten(1, (B, H)).permute(1, 0, 3, 2, 4).flatten(1, 2)[:, :T]


class Maps(NamedTuple):
    """What every chunk does with the W that it starts with, for all chunks at once.

    It reads `queries W^T + base`, writes u = `values - keys W^T` and ends with `kept W + u^T ends`.
    """

    queries: Tensor
    base: Tensor
    kept: Tensor | float
    keys: Tensor | None
    values: Tensor
    ends: Tensor


def _maps(x: Chunks) -> Maps:
    d = _decays(x.decay)
    scores = x.q @ x.k.mT * (_lower(x.k) if d is None else d.between)
    queries = x.q if d is None else x.q * d.since
    ends = x.k if d is None else x.k * d.between[..., -1, :, None]
    kept = 1.0 if d is None else d.since[..., -1:, :]
    values, keys = _solve(x, d)
    if keys is not None:
        queries = queries - scores @ keys
    return Maps(queries, scores @ values, kept, keys, values, ends)


def _scan_block(W: Tensor, parts: Sequence[Any], size: int) -> tuple[Tensor, Tensor, Tensor]:
    """What every step reads, `[B, T, H, V]`, the W before every chunk, `[N, B H, V, K]`, and the last one."""
    maps = _maps(_chunk(parts, size))
    starts, last = _walk(W, maps)
    return _unchunk(maps.queries @ starts.mT + maps.base, parts[0]), starts, last


class CheckpointedScan(torch.autograd.Function):
    """The scan, keeping its inputs and the W before every chunk, and computing the rest again on the way back.

    It goes through time in blocks of chunks that stay near the cache. Only W and its gradient walk from chunk to chunk;
    given those, the chunks are independent, and autograd takes the maps of a block at once.
    """

    @staticmethod
    def forward(ctx: Any, size: int, W: Tensor, *parts: Any) -> tuple[Tensor, Tensor]:
        y, starts = torch.empty_like(parts[2], memory_format=torch.contiguous_format), []
        for time in _blocks(parts, size):
            y[:, time], came, W = _scan_block(W, _during(parts, time), size)
            starts.append(came)
        ctx.size, ctx.constants = size, [None if isinstance(part, Tensor) else part for part in parts]
        ctx.save_for_backward(*starts, *(part for part in parts if isinstance(part, Tensor)))
        ctx.blocks = len(starts)
        return y, W

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor, d_W: Tensor) -> tuple[Any, ...]:
        starts, tensors = ctx.saved_tensors[: ctx.blocks], iter(ctx.saved_tensors[ctx.blocks :])
        parts = [next(tensors) if part is None else part for part in ctx.constants]
        gradients = [torch.empty_like(part) if isinstance(part, Tensor) else None for part in parts]
        for time, came in reversed(list(zip(_blocks(parts, ctx.size), starts, strict=True))):
            d_parts, d_W = _block_gradients(_during(parts, time), came, d_y[:, time], d_W, ctx.size)
            for whole, part in zip((g for g in gradients if g is not None), d_parts, strict=True):
                whole[:, time] = part
        return None, d_W, *gradients


def _blocks(parts: Sequence[Any], size: int) -> list[slice]:
    """Stretches of time of whole chunks, with at most `BLOCK` numbers in the keys and values of each."""
    T = parts[0].shape[1]
    numbers = size * (parts[1][:, 0].numel() + parts[2][:, 0].numel())
    steps = size * max(1, BLOCK // numbers)
    return [slice(start, min(start + steps, T)) for start in range(0, T, steps)]


def _during(parts: Sequence[Any], time: slice) -> list[Any]:
    return [part[:, time] if isinstance(part, Tensor) else part for part in parts]


def _block_gradients(
    parts: Sequence[Any], starts: Tensor, d_y: Tensor, d_W: Tensor, size: int
) -> tuple[Sequence[Tensor], Tensor]:
    """The gradients of a block's program and of the W before it, from those of what it read and of the W after it."""
    leaves = [part.detach().requires_grad_() for part in parts if isinstance(part, Tensor)]
    given = iter(leaves)
    with torch.enable_grad():
        maps = _maps(_chunk([next(given) if isinstance(part, Tensor) else part for part in parts], size))
    d_maps, d_W = _walk_back(maps, starts, _cut(d_y, size).contiguous(), d_W)
    graph = [(m, d) for m, d in zip(maps, d_maps, strict=True) if isinstance(m, Tensor) and m.requires_grad]
    outputs, d_outputs = zip(*graph, strict=True)
    return torch.autograd.grad(outputs, leaves, d_outputs, materialize_grads=True), d_W


def _walk(W: Tensor, maps: Maps) -> tuple[Tensor, Tensor]:
    """Carries W from chunk to chunk; returns the W before every chunk, and the last."""
    starts = []
    for kept, keys, values, ends in _each(maps.kept, maps.keys, maps.values, maps.ends):
        starts.append(W)
        u = values if keys is None else torch.baddbmm(values, keys, W.mT, alpha=-1)
        W = torch.baddbmm(_fade(W, kept), u.mT, ends)
    return torch.stack(starts), W


@torch.no_grad()
def _walk_back(maps: Maps, starts: Tensor, d_read: Tensor, d_last: Tensor) -> tuple[Maps, Tensor]:
    """The gradients of the maps and of the first W: `_walk` and the reading, backwards."""
    d_W, d_written, d_afters = d_last, [], []
    for kept, keys, ends, queries, d_r in reversed(_each(maps.kept, maps.keys, maps.ends, maps.queries, d_read)):
        d_u = ends @ d_W.mT
        d_afters.append(d_W)
        d_written.append(d_u)
        d_W = torch.baddbmm(_fade(d_W, kept), d_r.mT, queries)
        if keys is not None:
            d_W = torch.baddbmm(d_W, d_u.mT, keys, alpha=-1)
    d_values, d_after = torch.stack(d_written[::-1]), torch.stack(d_afters[::-1])
    u = maps.values if maps.keys is None else maps.values - maps.keys @ starts.mT
    d_maps = Maps(
        queries=d_read @ starts,
        base=d_read,
        kept=(d_after * starts).sum((-2, -1), keepdim=True) if isinstance(maps.kept, Tensor) else 0.0,
        keys=None if maps.keys is None else -(d_values @ starts),
        values=d_values,
        ends=u @ d_after,
    )
    return d_maps, d_W


def _fade(W: Tensor, kept: Tensor | float) -> Tensor:
    return kept * W if isinstance(kept, Tensor) else W


def _each(*maps: Any) -> list[tuple[Any, ...]]:
    """The maps chunk by chunk. unbind, since indexing would make a backward pass quadratic in T."""
    count = next(len(part) for part in maps if isinstance(part, Tensor))
    columns = [part.unbind(0) if isinstance(part, Tensor) else [part] * count for part in maps]
    return list(zip(*columns, strict=True))


class Decays(NamedTuple):
    """Products of decays in a chunk: `between[i, j]` after j up to i, `since[i]` and `before[i]` from the start."""

    between: Tensor
    since: Tensor
    before: Tensor


def _decays(decay: Tensor | float) -> Decays | None:
    if not isinstance(decay, Tensor):
        assert decay == 1.0, "a constant decay other than 1 must be a tensor"
        return None
    between = _products(decay.squeeze(-1))
    since = between[..., :1] * decay[..., :1, :]
    before = torch.cat([torch.ones_like(since[..., :1, :]), since[..., :-1, :]], dim=-2)
    return Decays(between, since, before)


def _products(d: Tensor) -> Tensor:
    """P[i, j] = product of d[j+1..i] for j <= i, else 0, by halving: exact for zeros, with no logarithm or division."""
    C = d.shape[-1]
    if C == 1:
        return torch.ones_like(d).unsqueeze(-1)
    halves = d.unflatten(-1, (2, C // 2))
    first, second = _products(halves).unbind(-3)
    since = second[..., :1] * halves[..., 1, :1, None]
    corner = since * first[..., -1:, :]
    upper = torch.cat([first, torch.zeros_like(first)], dim=-1)
    return torch.cat([upper, torch.cat([corner, second], dim=-1)], dim=-2)


def _solve(x: Chunks, d: Decays | None) -> tuple[Tensor, Tensor | None]:
    """`values` and `keys` such that the written vectors are u = values - keys W0^T."""
    values = x.write * x.v
    if not isinstance(x.erase, Tensor):
        assert x.erase == 0.0, "a constant erase other than 0 must be a tensor"
        return values, None
    keys = x.erase * x.k
    A = keys @ x.k.mT
    if d is not None:
        A = A * pad(d.between[..., :-1, :], (0, 0, 1, 0))
        keys = keys * d.before
    inverse = UnitLowerInverse.apply(A)
    return inverse @ values, inverse @ keys


class UnitLowerInverse(torch.autograd.Function):
    """(I + the part of A below the diagonal)^-1, with a backward pass of two products instead of a second solve."""

    @staticmethod
    def forward(ctx: Any, A: Tensor) -> Tensor:
        eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        inverse = torch.linalg.solve_triangular(A, eye, upper=False, unitriangular=True)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return inverse.mT @ grad @ inverse.mT * -_lower(inverse, -1)


def _lower(like: Tensor, diagonal: int = 0) -> Tensor:
    """C by C ones on and below a diagonal. Multiplying by it is several times as fast on CPU as `tril` of a batch."""
    C = like.shape[-2]
    return torch.ones(C, C, dtype=like.dtype, device=like.device).tril(diagonal)
