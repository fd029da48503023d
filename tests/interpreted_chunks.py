"""Compares the fused chunk kernels with a loop in float64, in a process with Triton's interpreter.

    TRITON_INTERPRET=1 python tests/interpreted_chunks.py CHECK CASE ... [-- CHECK CASE ...]

prints a line `CASE: ok` or `CASE:` with the error for every case. Uninitialised memory holds NaN.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import isfunction
from typing import Any

import pytest
import torch
from torch import Tensor

from fastweights import Cell, scan
from fastweights.adapters.transformers.memories import delta_rules
from fastweights.backends.chunkwise import chunkwise, fused_max, fused_scan, stage_scan
from fastweights.backends.chunkwise.fused_scan import ScanOperands
from fastweights.core.errors import InputError
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape
from interpreted import interpret, run_apart

DECAYS = {
    "no decay": lambda K: 0,
    "decay": lambda K: 1,
    "decay by column": lambda K: K,
    "mixing": lambda K: 4,
    "mixing by column": lambda K: 2 * K,
}
"""The numbers of a step's decay. Two states of K / 2 columns mix."""
KEYS = ("sum", "one key", "similar keys", "other erase")
RUNS = (
    ((2, 19, 2, 5, 3), 1, True, torch.float64, False),
    ((1, 18, 1, 20, 34), 1, False, torch.float32, False),
    ((1, 35, 1, 34, 18), 1, True, torch.float32, True),
    ((2, 1, 1, 7, 20), 1, True, torch.float64, False),
)
"""B, T, H, K, V, the steps of a group, whether reads follow the step, the dtype, and whether the inputs have half
precision.

The shapes cover several heads and chunks, several programs of rows, several blocks of columns, and one step.
"""
GROUPS = (((1, 20, 1, 5, 3), 2, True, torch.float64, False), ((1, 24, 1, 18, 5), 4, False, torch.float32, False))
"""The same for groups of steps that read the same S."""
CUT = (((2, 83, 1, 4, 3), 1, True, torch.float64, False), ((1, 49, 1, 18, 17), 1, False, torch.float32, False))
"""The same for sequences that are cut into segments of two chunks. The last segment is shorter."""
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}


def loop(x: ScanOperands, states: int, group: int, after: bool) -> tuple[Tensor, Tensor]:
    """The definition as a loop over time steps."""
    S, old, reads = x.S, x.S, []
    for t in range(x.q.shape[1]):
        old = old if t % group else S
        u = x.v[:, t] if x.e is None else x.v[:, t] - (old @ x.e[:, t].unsqueeze(-1)).squeeze(-1)
        S = S if x.a is None else decayed(S, x.a[:, t], states)
        S = S + u.unsqueeze(-1) * x.k[:, t].unsqueeze(-2)
        reads.append(((S if after else old) @ x.q[:, t].unsqueeze(-1)).squeeze(-1))
    return torch.stack(reads, 1), S


def decayed(S: Tensor, a: Tensor, states: int) -> Tensor:
    """S after the decay of a step, or after the matrix that mixes its states."""
    if states == 1:
        return S * a.unsqueeze(-2)
    blocks, matrix = S.unflatten(-1, (2, -1)), a.unflatten(-1, (2, 2, -1))
    return torch.einsum("bhvnk,bhmnk->bhvmk", blocks, matrix.expand(*matrix.shape[:-1], blocks.shape[-1])).flatten(-2)


def states_of(case: str) -> int:
    """The number of states side by side."""
    return 2 if "mixing" in case else 1


def sample(case: str, shape: tuple[int, ...], group: int = 1) -> ScanOperands:
    """Keys of length 1, rates up to 2, and decays near 1, some of which are 0, 1e-30, 1 or negative.

    Only the first step of a group decays.
    """
    B, T, H, K, V = shape
    K += K % states_of(case)
    torch.manual_seed(0)
    kind, decay = case.split(", ")
    q, k = torch.randn(2, B, T, H, K, dtype=torch.float64)
    if kind == "one key":
        k = k[:, :1].expand_as(k)
    if kind == "similar keys":
        k = k[:, :1] + 1e-3 * k
    k = k / k.norm(dim=-1, keepdim=True)
    v, S = torch.randn(B, T, H, V, dtype=torch.float64), torch.randn(B, H, V, K, dtype=torch.float64)
    beta = torch.rand(B, T, H, 1, dtype=torch.float64) * 2
    a = decays(B, T, H, DECAYS[decay](K))
    if states_of(case) == 2:
        a = a * torch.tensor([1.0, 0.1, -0.2, 1.0]).repeat_interleave(a.shape[-1] // 4)
    elif a is not None:
        a = torch.where((torch.arange(T) % group == 0).view(T, 1, 1), a, 1.0)
    e = None if kind == "sum" else beta * k * (1.0 if a is None or states_of(case) == 2 else a)
    if kind == "other erase":
        e = torch.randn(B, T, H, K, dtype=torch.float64) / K
    return ScanOperands(q, k, e, v if e is None else beta * v, a, S)


def decays(B: int, T: int, H: int, F: int) -> Tensor | None:
    if not F:
        return None
    a = 1 - torch.rand(B, T, H, F, dtype=torch.float64) / 20
    a[:, 3::17], a[:, 6::9], a[:, 5::7], a[:, 4::11] = 0.0, 1e-30, -a[:, 5::7], 1.0
    a[:, 12::13, :, ::2] = 0.0
    return a


def results(x: ScanOperands, run: Callable[..., Any], *arguments: Any) -> list[Tensor]:
    """y, the last S, and the gradients of all operands."""
    leaves = ScanOperands(*(None if t is None else t.detach().clone().requires_grad_() for t in x))
    y, last = run(leaves, *arguments)
    torch.manual_seed(1)
    weights = [torch.randn(t.shape, dtype=torch.float64).to(t.dtype) for t in (y, last)]
    inputs = [t for t in leaves if t is not None]
    return [y.detach(), last.detach(), *torch.autograd.grad([y, last], inputs, weights)]


def results_in_few_launches(*arguments: Any) -> list[Tensor]:
    """The results of a short sequence, with as few launches as there are."""
    from fastweights.backends.chunkwise.triton import fused_scan as launches

    before, launches.SHORT = launches.SHORT, 4
    try:
        return results(*arguments)
    finally:
        launches.SHORT = before


def covering_runs(case: str) -> list[Any]:
    """One of the runs and one of the groups, so that every run meets every decay and at least three kinds of keys."""
    keys, decay = case.split(", ")
    shift = KEYS.index(keys) + [*DECAYS].index(decay)
    has_groups = keys == "other erase" and states_of(case) == 1
    return [RUNS[shift % len(RUNS)], *([GROUPS[shift % len(GROUPS)]] if has_groups else [])]


def further_runs(case: str) -> list[Any]:
    """All runs of a case but the covering ones."""
    has_groups = case.startswith("other erase") and states_of(case) == 1
    return [run for run in RUNS + GROUPS * has_groups if run not in covering_runs(case)]


def equals_the_loop(case: str) -> None:
    """Values, the last S and all gradients, for reads before and after the step, in both precisions."""
    for run in covering_runs(case):
        compare(case, *run)


def equals_the_loop_further(case: str) -> None:
    """The same at the further shapes."""
    for run in further_runs(case):
        compare(case, *run)


def equals_the_loop_cut(case: str) -> None:
    """The same for sequences that are cut into segments."""
    cut_sequences()
    for run in CUT:
        compare(case, *run)


def cut_sequences() -> None:
    """Divides sequences of two chunks or more into segments of two."""
    from fastweights.backends.chunkwise.triton import fused_scan as launches

    launches.LONG = launches.SEGMENT = 2
    launches.processors_of = lambda device: 100


def compare(case: str, shape: tuple[int, ...], group: int, after: bool, dtype: torch.dtype, is_half: bool) -> None:
    states = states_of(case)
    x = ScanOperands(*(None if t is None else t.to(dtype) for t in sample(case, shape, group)))
    expected = results(ScanOperands(*(None if t is None else t.double() for t in x)), loop, states, group, after)
    got = results(x, fused_scan.fused_scan, states, group, after, is_half)
    alone = results_in_few_launches(x, fused_scan.fused_scan, states, group, after, is_half)
    assert all(map(torch.equal, got, alone)), (shape, "differs in one launch")
    if x.a is not None:  # decays of steps that may not decay have no gradient
        for gradients in (expected, got):
            gradients[-2] = gradients[-2][:, ::group]
    errors = [((g - w).abs().max() / w.abs().max().clamp(min=1e-30)).item() for g, w in zip(got, expected, strict=True)]
    assert max(errors) < TOLERANCES[dtype], (shape, group, after, dtype, is_half, errors)


def is_alone_what_it_is_in_a_batch(case: str) -> None:
    """Results of a sequence are bit-identical alone, in a batch, and in a second run."""
    compare_bits(case, (2, 18, 1, 20, 18))


def is_alone_what_it_is_in_a_batch_cut(case: str) -> None:
    """The same for a sequence of two segments."""
    cut_sequences()
    compare_bits(case, (2, 50, 1, 5, 3))


def compare_bits(case: str, shape: tuple[int, ...]) -> None:
    x = sample(case, shape)
    whole, again = (results(x, fused_scan.fused_scan, 1, 1, True, False) for _ in range(2))
    for b in range(2):
        one = results(
            ScanOperands(*(None if t is None else t[b : b + 1] for t in x)), fused_scan.fused_scan, 1, 1, True, False
        )
        # torch.randn draws other weights for other shapes, so the gradients differ.
        assert all(torch.equal(o[0], w[b]) for o, w in zip(one[:2], whole, strict=False))
    assert all(torch.equal(a, w) for a, w in zip(again, whole, strict=True))


def is_an_operation(case: str) -> None:
    """PyTorch's check of an operation: traced shapes, strides and gradients equal those of a run."""
    tensors = [None if t is None else t.requires_grad_() for t in sample(case, (1, 17, 1, 3, 2))]
    torch.library.opcheck(torch.ops.fastweights.chunk_scan.default, (*tensors, 1, 1, True, False, True))


MAXIMA = ((1, 1, 1), (2, 255, 3), (1, 256, 5), (2, 257, 1), (1, 600, 2))
"""B, T and H of running maxima. A block has 256 steps, and a program 2 heads."""


def running_maxima_equal_the_loop(case: str) -> None:
    """Values and gradients, with equal arguments of maxima and steps that forget a m of NaN."""
    dtype = getattr(torch, case)
    real = torch.promote_types(dtype, torch.float32)
    for B, T, H in MAXIMA:
        torch.manual_seed(0)
        plus, floor, m = -torch.rand(B, T, H), torch.randn(B, T, H).sub(1), torch.randn(B, H)
        plus[:, 4::9] = 0.0
        floor[:, 7::11] = -torch.inf
        if T > 30:
            floor[:, 30:32], plus[:, 31] = 9.0, 0.0
            plus[:, 20], m[:, 0] = -torch.inf, torch.nan
        operands = [plus.to(dtype), floor.to(dtype), m.to(real)]
        weights = [torch.randn(B, T, H, dtype=real), torch.randn(B, T, H, dtype=real), torch.randn(B, H, dtype=real)]
        results = []
        for run, to in ((fused_max.fused_max, lambda x: x), (loop_of_maxima, lambda x: x.double())):
            leaves = [to(x).detach().requires_grad_() for x in operands]
            outputs = [x.nan_to_num(0.0, posinf=torch.inf, neginf=-torch.inf) for x in run(*leaves)]
            total = sum((to(w) * y).sum() for w, y in zip(weights, outputs, strict=True))
            results.append([*outputs, *torch.autograd.grad(total, leaves)])
        for got, want in zip(*results, strict=True):
            torch.testing.assert_close(got, want.to(got.dtype), equal_nan=True)


def loop_of_maxima(plus: Tensor, floor: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The definition as a loop over time steps. A step that adds -inf forgets m."""
    before, after = [], []
    for p, f in zip(plus.unbind(1), floor.unbind(1), strict=True):
        before.append(m)
        m = torch.where(p == -torch.inf, f, torch.maximum(m + p, f))
        after.append(m)
    return torch.stack(before, 1), torch.stack(after, 1), m


def running_maximum_is_an_operation(case: str) -> None:
    """The same as `is_an_operation`, for running maxima."""
    tensors = [torch.randn(2, 3, 2, requires_grad=True), torch.randn(2, 3, 2, requires_grad=True)]
    torch.library.opcheck(torch.ops.fastweights.running_max.default, (*tensors, torch.randn(2, 2, requires_grad=True)))


def traces_whole(case: str) -> None:
    """`torch.compile(fullgraph=True)` of a scan gives the results and gradients of an eager scan."""
    cell = Cell.from_name(case)
    a = scan_checks.with_gradients(scan_checks.arguments(cell, Shape(1, 18, 1, 3, 2)))

    def run(arguments: Any) -> Any:
        return scan(cell, *arguments, backend="chunkwise")

    (y, _), (traced, _) = run(a), torch.compile(run, fullgraph=True, backend="aot_eager")(a)
    torch.testing.assert_close(traced, y)
    assert "chunk_scan" in type(traced.grad_fn).__name__ or "Compiled" in type(traced.grad_fn).__name__
    inputs = [*a.inputs]
    torch.testing.assert_close(torch.autograd.grad(traced.sum(), inputs), torch.autograd.grad(y.sum(), inputs))


def refuses_second_derivatives(case: str) -> None:
    """A second derivative raises an error that names the backend, whichever kernel it meets first."""
    cell = Cell.from_name(case)
    a = scan_checks.with_gradients(scan_checks.arguments(cell, Shape(1, 18, 1, 3, 2))._replace(reset=None))
    y, _ = scan(cell, *a, backend="chunkwise")
    first = torch.autograd.grad(y.sum(), [*a.inputs], create_graph=True)
    for d in first:
        with pytest.raises(InputError, match="backend must be 'reference' for second derivatives"):
            torch.autograd.grad(d.sum(), [*a.inputs], retain_graph=True, allow_unused=True)


def reads_half_precision(case: str) -> None:
    """The kernels read half-precision inputs and write their gradients without a copy in float32."""
    cell, dtypes = Cell.from_name(case), []
    a = scan_checks.arguments(cell, Shape(1, 18, 2, 5, 3))._replace(reset=None).to(torch.bfloat16)
    run = fused_scan.fused_scan

    def record(operands: ScanOperands, *form: Any) -> tuple[Tensor, Tensor]:
        dtypes.append({name: x.dtype for name, x in operands._asdict().items() if x is not None})
        return run(operands, *form)

    stage_scan.fused_scan = record
    got = scan_checks.results_and_gradients(cell, "chunkwise", a)
    want = scan_checks.results_and_gradients(cell, "reference", a.to(torch.float64))
    scan_checks.assert_close(got, want, torch.bfloat16, Shape(1, 18, 2, 5, 3))
    assert dtypes[0]["q"] == dtypes[0]["k"] == torch.bfloat16, dtypes
    assert dtypes[0]["S"] == torch.float32


def replaces_a_function_of_transformers(case: str) -> None:
    """Chunk kernels equal the function that `enable` replaces, in results and gradients, also with grouped heads."""
    module, name = case.split(":")
    replacement = {"gated": delta_rules.GATED, "kimi": delta_rules.KIMI}[name]
    source = import_module(f"transformers.models.{module}.modeling_{module}")
    original = next(f for n, f in vars(source).items() if isfunction(f) and re.fullmatch(replacement.name, n))
    chunkwise._is_fastest = lambda call: True
    calls, run = [], fused_scan.fused_scan
    stage_scan.fused_scan = lambda *arguments: calls.append(1) or run(*arguments)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 21, 2, 4)
    g = -torch.rand(1, 21, 2, 4) if name == "kimi" else -torch.rand(1, 21, 2)
    options = {"initial_state": torch.randn(1, 2, 4, 4), "output_final_state": True, "use_qk_l2norm_in_kernel": True}
    results = []
    for function in (replacement.compute, original):
        leaves = [x.clone().requires_grad_() for x in (q, k, v, g, torch.rand(1, 21, 2, generator=seeded(1)))]
        y, last = function(*leaves, **options)
        results.append([y, last, *torch.autograd.grad(y.square().sum() + last.square().sum(), leaves)])
    assert calls, "no fused scan ran"
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def main(check: str, cases: list[str]) -> None:
    """Prints a line per case. Sequences have as many launches as long ones, unless a check says otherwise."""
    interpret()
    import_module("fastweights.backends.chunkwise.triton.fused_scan").SHORT = 0
    for case in cases:
        try:
            globals()[check](case)
            print(f"{case}: ok", flush=True)
        except Exception as error:
            print(f"{case}:", " ".join(f"{type(error).__name__}: {error}".split()), flush=True)


if __name__ == "__main__":
    run_apart(sys.argv[1:], main)
