"""Chunks of time as matrix products, for cells with an affine form.

Inside a chunk of C steps, with d[i,j] the product of the decays after step j up to step i and c[i] the product from
the start of the chunk up to step i, every step writes a vector u[i] to its key:

    W[i] = c[i] W0 + sum_{j<=i} d[i,j] u[j] k[j]^T,     u[i] = write[i] v[i] - erase[i] W[i-1] k[i]

Putting the first into the second gives one unit lower triangular system a chunk, (I + A) u = write v - erase c W0 k
with A[i,j] = erase[i] d[i-1,j] k[i].k[j], which is solved for all chunks at once for the part without W0 and the part
linear in it. Only W0 walks from chunk to chunk. This is the WY form of Bischof and Van Loan 1987, used for the delta
rule by Yang et al. 2024 (Parallelizing Linear Transformers with the Delta Rule), Sec. 3, here with erase and decay.

Kept for the backward pass: a state a chunk, and C numbers a step.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fastweights.affine import Affine
from fastweights.backends.reference import where
from fastweights.problem import Problem


class Chunks(NamedTuple):
    """A program cut into N chunks of C steps: q, k `[B, H, N, C, K]`, v `[.., V]`, scalars `[B, H, N, C, 1]`."""

    q: Tensor
    k: Tensor
    v: Tensor
    scalars: Affine


def refusal(problem: Problem) -> str:
    """Why this backend cannot run the problem; empty if it can."""
    if problem.cell.affine is None:
        return f"{problem.cell.name} declares no affine form (see fastweights.affine)"
    return ""


def run(problem: Problem) -> tuple[Tensor, Any]:
    """Runs the affine form of the cell chunk by chunk."""
    form = problem.cell.affine
    assert form is not None
    q, k, v, scalars = form.program(problem.inputs)
    state = problem.state
    if problem.reset is not None:
        # At the first step a reset replaces the carried state, so that not even a NaN in it survives.
        state = where(problem.reset[:, 0], problem.initial, state)
        scalars = _cut(scalars, problem.reset, q)
    T = q.shape[1]
    read, W = _scan_chunks(_chunk(q, k, v, scalars, _chunk_size(T, q.shape[-1])), form.pack(state))
    y = read.flatten(2, 3)[:, :, :T].transpose(1, 2)
    return form.read(y).to(problem.dtype), form.unpack(W)


def _chunk_size(T: int, K: int) -> int:
    """A power of two: 16 steps for keys up to 16, else 32, the fastest on CPU; less for a shorter sequence."""
    return min(16 if K <= 16 else 32, 1 << (T - 1).bit_length())


def _cut(scalars: Affine, reset: Tensor, like: Tensor) -> Affine:
    """Forgets everything before a reset: there decay and erase are 0."""
    keep = (~reset).to(like.dtype).unsqueeze(-1).expand(like.shape[:3])
    return Affine(scalars.decay * keep, scalars.erase * keep, scalars.write)


def _chunk(q: Tensor, k: Tensor, v: Tensor, scalars: Affine, size: int) -> Chunks:
    """Cuts `[B, T, H, .]` into `[B, H, N, size, .]`; steps that fill up the last chunk write and erase nothing."""
    missing = -q.shape[1] % size

    def cut(x: Tensor, fill: float = 0.0) -> Tensor:
        return pad(x.transpose(1, 2), (0, 0, 0, missing), value=fill).unflatten(2, (-1, size))

    def cut_scalar(x: Tensor | float, fill: float) -> Tensor | float:
        return cut(x.unsqueeze(-1), fill) if isinstance(x, Tensor) else x

    decay, erase, write = scalars
    return Chunks(
        cut(q), cut(k), cut(v), Affine(cut_scalar(decay, 1.0), cut_scalar(erase, 0.0), cut_scalar(write, 0.0))
    )


def _scan_chunks(x: Chunks, W: Tensor) -> tuple[Tensor, Tensor]:
    """What every step reads, `[B, H, N, C, V]`, and the last W."""
    d = _decays(x)
    values, keys = _solve(x, d)
    written, starts, W = _walk(x, d, values, keys, W)
    return _read(x, d, written, starts), W


class Decays(NamedTuple):
    """Products of decays in a chunk: `between[i, j]` after j up to i, `since[i]` from the start up to i."""

    between: Tensor
    since: Tensor
    before: Tensor


def _decays(x: Chunks) -> Decays | None:
    decay = x.scalars.decay
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
    erase, write = x.scalars.erase, x.scalars.write
    values = write * x.v
    if not isinstance(erase, Tensor):
        assert erase == 0.0, "a constant erase other than 0 must be a tensor"
        return values, None
    keys = erase * x.k
    A = keys @ x.k.mT
    if d is not None:
        A = A * pad(d.between[..., :-1, :], (0, 0, 1, 0))
        keys = keys * d.before
    inverse: Tensor = UnitLowerInverse.apply(A)
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
    """Ones on and below a diagonal. Multiplying by it is several times as fast as `tril` of a batch on CPU."""
    C = like.shape[-1]
    return torch.ones(C, C, dtype=like.dtype, device=like.device).tril(diagonal)


def _walk(x: Chunks, d: Decays | None, values: Tensor, keys: Tensor | None, W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Carries W from chunk to chunk; returns the written vectors, the W before every chunk, and the last W."""
    to_end = x.k if d is None else x.k * d.between[..., -1, :, None]
    kept: Sequence[Tensor | float] = [1.0] * x.k.shape[2] if d is None else d.since[..., -1:, :].unbind(2)
    # unbind once: indexing chunk by chunk would make the backward pass quadratic in T.
    steps = zip(
        values.unbind(2),
        (keys.unbind(2) if keys is not None else [None] * len(kept)),
        to_end.unbind(2),
        kept,
        strict=True,
    )
    written, starts = [], []
    for u, e, k, c in steps:
        if e is not None:
            u = u - e @ W.mT
        written.append(u)
        starts.append(W)
        W = c * W + u.mT @ k
    return torch.stack(written, dim=2), torch.stack(starts, dim=2), W


def _read(x: Chunks, d: Decays | None, written: Tensor, starts: Tensor) -> Tensor:
    scores = x.q @ x.k.mT
    if d is None:
        return x.q @ starts.mT + (scores * _lower(scores)) @ written
    return (x.q * d.since) @ starts.mT + (scores * d.between) @ written
