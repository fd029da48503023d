"""Chunks of time as matrix products, for cells whose states the compiler finds affine in themselves.

`compiler/affine` says what is computed before the scans of the states, what between them, and what after the last:
all of it for all time at once, in plain PyTorch on any device. `_chunks.py` scans.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.backends._transforms import transform
from fastweights.backends.chunkwise.chunks import Reads, scan
from fastweights.backends.chunkwise.coefficients import begun, matrix, seen, states
from fastweights.backends.chunkwise.lowering import Plan, Raised, Scanned, call, given_to, plan_of
from fastweights.backends.chunkwise.running_max import maxima
from fastweights.call.call import Problem
from fastweights.core.grad_mode import wants_gradients
from fastweights.core.padding import only
from fastweights.state import where

SHORT = 64
"""Up to so many steps, nothing is computed twice."""
LARGE = {"sums": {"short": 10_000, "long": 1 << 16}, "other": {"short": 1 << 16, "long": 1 << 17}}
"""Numbers in the state of a head from which training is faster than by a compiled kernel, measured on CPUs: of memories
that only add up, and of others."""


def refusal(problem: Problem, build: bool) -> str:
    """Why this backend cannot run the problem; empty if it can."""
    transformed = transform()
    if transformed:
        return transformed
    plan = plan_of(problem.mapped)
    return plan if isinstance(plan, str) else ""


def cost(problem: Problem) -> float:
    """In the time of a compiled kernel: 3 to 20 were measured, but less than 1 where large states are trained on a CPU,
    since a chunk's states of the compiled kernel leave the cache."""
    return 0.8 if problem.inputs[0].device.type == "cpu" and _is_ahead(problem) else 5.0


def _is_ahead(problem: Problem) -> bool:
    """Whether it trains faster than a compiled kernel, on a CPU."""
    if torch.compiler.is_exporting():
        return False  # T may be any: nothing is asked of it.
    T = problem.leading[1]
    trains = wants_gradients(problem.inputs)
    size, length = sum(leaf[0, 0].numel() for leaf in problem.state), "short" if T <= SHORT else "long"
    if not trains or T == 1 or size < LARGE["sums"][length]:
        return False
    plan = plan_of(problem.mapped)
    return not isinstance(plan, str) and plan.kind in LARGE and size >= LARGE[plan.kind][length]


def told(problem: Problem) -> str:
    """The form that was found."""
    plan = plan_of(problem.mapped)
    return plan if isinstance(plan, str) else plan.told


def run(problem: Problem) -> tuple[Tensor, Any]:
    """Runs the affine form of the cell chunk by chunk."""
    problem = problem.mapped
    plan = plan_of(problem)
    assert not isinstance(plan, str)
    given = given_to(problem)
    last: dict[str, Tensor] = {}
    for stage in plan.stages:
        run_stage = _raise if isinstance(stage, Raised) else _scan
        found, ends = run_stage(stage, problem, given)  # type: ignore[arg-type]
        given, last = given | found, last | ends
    return _output(plan, problem, given), type(problem.state)(*(last[name] for name in problem.state._fields))


class Stretch(NamedTuple):
    """What a stretch of time does with any S `[B, H, R, K]`: reads `base + S queries`, ends with `S kept + written`."""

    base: Tensor  # [B, T, H, n, R]
    queries: Tensor  # [B, T, H, n, K]
    kept: Tensor  # [B, H, K, K]
    written: Tensor  # [B, H, R, K]
    plan: Plan
    problem: Problem
    given: Mapping[str, Tensor]

    def after(self, state: Any) -> Any:
        """The last state."""
        (stage,) = self.plan.stages
        assert isinstance(stage, Scanned)
        ends = states(stage, matrix(stage, state) @ self.kept + self.written)
        return type(state)(*(ends[name] for name in state._fields))

    def output(self, state: Any) -> Tensor:
        """What every step says."""
        (stage,) = self.plan.stages
        assert isinstance(stage, Scanned)
        read = self.base + torch.einsum("bhrk,bthnk->bthnr", matrix(stage, state), self.queries)
        return _output(self.plan, self.problem, {**self.given, **seen(stage, Reads(read, None))})


def stretch(problem: Problem) -> Stretch | None:
    """That of a problem whose states are rows of one matrix, read along them, from S = 0; None for others."""
    problem = problem.mapped
    plan = plan_of(problem)
    if isinstance(plan, str) or len(plan.stages) > 1 or not isinstance(stage := plan.stages[0], Scanned):
        return None
    if stage.across:
        return None
    given, K = given_to(problem), stage.parts[0].width
    # From S = 0 and, in further rows to which nothing is written, from S = I.
    zeros = torch.zeros_like(matrix(stage, problem.state))
    eye = torch.eye(K, dtype=zeros.dtype, device=zeros.device).expand(*zeros.shape[:2], K, K)
    read, last = scan(begun(stage, problem, given, K).over, torch.cat([zeros, eye], -2))
    rows = [zeros.shape[-2], K]
    assert read.along is not None
    (base, queries), (written, kept) = read.along.split(rows, -1), last.split(rows, -2)
    return Stretch(base, queries, kept, written, plan, problem, given)


def _output(plan: Plan, problem: Problem, given: Mapping[str, Tensor]) -> Tensor:
    """y of all that is seen."""
    (y,) = call(plan.output, problem, given)
    y = y.expand(*problem.leading, *y.shape[3:]).to(problem.dtype)
    inside = problem.inside
    return y if inside is None else only(inside, y)


def _scan(stage: Scanned, problem: Problem, given: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What is seen of the states of a stage, and the last ones."""
    begin, state = begun(stage, problem, given), problem.state
    if problem.reset is not None:
        # At the first step a reset replaces the carried state, so that not even a NaN in it survives.
        state = where(problem.reset[:, 0], problem.initial, state)
    read, last = scan(begin.over, matrix(stage, state))
    if begin.start is not None and begin.left is not None:
        last = last + begin.start * begin.left.unsqueeze(-2)
    return seen(stage, read), states(stage, last)


def _raise(stage: Raised, problem: Problem, given: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A scalar before and after every step, by name, and the last one."""
    plus, floor = (x.expand(problem.leading) for x in call(stage.function, problem, given))
    start = None if problem.reset is None else getattr(problem.initial, stage.state)
    before, after = maxima(getattr(problem.state, stage.state), plus, floor, start, problem)
    return {stage.before: before, stage.after: after}, {stage.state: after[:, -1]}
