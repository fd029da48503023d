"""Runs a cell over time: `scan`, and `explain`, which says how."""

import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.call.call import Problem, agree, pose
from fastweights.call.state_out import check_apart, check_unwatched, put
from fastweights.cell import Cell
from fastweights.core.autocast import full_precision
from fastweights.core.errors import require, require_name
from fastweights.registry import BACKENDS

# Imported here once: `torch.compile` traces `scan`, and must meet no import on the way.
MODULES = {name: import_module(f"fastweights.backends.{name}") for name in BACKENDS.names()}

WATCHERS: list[Callable[[Problem], None]] = []
"""Told of every call before it runs: see `fastweights.inspect`."""

log = logging.getLogger("fastweights")


class Explanation(NamedTuple):
    """Which backend runs a problem, and why the others do not."""

    problem: str
    chosen: str
    reasons: dict[str, str]

    def __str__(self) -> str:
        return "\n".join([self.problem, *(f"  {name:<10} {reason}" for name, reason in self.reasons.items())])


def scan(
    cell: str | Cell | Callable[..., Any],
    inputs: Any,
    state: Any = None,
    params: Any = None,
    reset: Tensor | None = None,
    lengths: Tensor | None = None,
    initial: Any = None,
    backend: str = "auto",
    state_out: Any = None,
) -> tuple[Tensor, Any]:
    """Runs a cell over time: `state[t], y[t] = step(state[t-1], x[t])` for every member of the batch and every head.

    Args:
        cell: A step `(state, x) -> (state, y)`, a rule `(W, ...) -> W`, a name or a `Cell`, as in `Cell.from_function`.
        inputs: `cell.Inputs` of tensors `[B, T, H, ...]`. Half precision is computed in float32.
        state: `cell.State` of tensors `[B, H, ...]` before the first step. None: the initial state.
        params: `cell.Params` of tensors `[H, ...]`, for cells with slow weights inside the step.
        reset: bool `[B, T]`: the state goes back to the initial one before step t.
        lengths: int `[B]`, from 0 to T: how many steps a member has. What follows is padding: its inputs are not
            looked at, its y is 0, and the last state is that after the member's own last step. On a GPU, where to look
            at their numbers would be to wait for it, larger ones are taken as T.
        initial: `cell.State` of tensors `[H, ...]`, the initial state of every head. None: zeros.
        backend: "auto", or a name from `explain`; a named backend runs or raises.
        state_out: `cell.State` of contiguous tensors `[B, H, ...]` that the state after the last step is written to,
            where no gradients are wanted. It may be `state`, which is then updated in place: a step that leaves a large
            one as it was takes twice as long. It must share no memory with anything else that is given.

    Returns:
        y `[B, T, H, V]` in the dtype of the inputs, and the state after the last step, in float32 or float64:
        `state_out`, if that is given.

    Raises:
        InputError: an input does not fit the cell, or the backend cannot run it.

    >>> delta = Cell.from_name("delta")
    >>> q, k, v = torch.randn(3, 2, 5, 4, 8).unbind()
    >>> y, state = scan(delta, delta.Inputs(q, k.softmax(-1), v, beta=torch.rand(2, 5, 4)))
    >>> y.shape, state.W.shape
    (torch.Size([2, 5, 4, 8]), torch.Size([2, 4, 8, 8]))
    """
    cell = Cell.from_function(cell)
    if not isinstance(backend, str):
        require_backend(backend)
    agreement = agree(cell, inputs, state, params, reset, lengths, initial, state_out)
    if state_out is not None:
        check_apart(state_out, state, [*inputs, *(params or ()), *(initial or ())])
    again = None if WATCHERS or state is None else agreement.known.get(backend)
    result = None if again is None else again(inputs, state, params, state_out)
    if result is None:
        if state_out is not None:
            check_unwatched(state_out, [*inputs, *(state or ()), *(params or ()), *(initial or ())])
        problem = pose(cell, inputs, state, params, reset, lengths, initial, state_out, agreement)
        for note in WATCHERS:
            note(problem)
        # Precision is the scan's own business: an autocast region must not turn its sums into half precision.
        with full_precision(inputs[0].device):
            module = MODULES[_choose(problem, backend)]
            result = module.run(problem)
        # Of one step, what this library's Python takes is longer than the step: a backend may do calls alike at once.
        if agreement.known.get(backend) is None and hasattr(module, "again"):
            agreement.known[backend] = module.again(problem)
    return result if state_out is None else (result[0], put(result[1], state_out))


def require_backend(backend: str) -> None:
    """Raises `InputError` unless `backend` is "auto" or the name of a backend."""
    require_name("backend", backend, ["auto", *MODULES])


def run_problem(problem: Problem, backend: str) -> tuple[Tensor, Any]:
    """What `scan` does with a call that has been checked."""
    result: tuple[Tensor, Any] = MODULES[_choose(problem, backend)].run(problem)
    return result


def explain(
    cell: str | Cell | Callable[..., Any],
    inputs: Any,
    state: Any = None,
    params: Any = None,
    reset: Tensor | None = None,
    lengths: Tensor | None = None,
    initial: Any = None,
) -> Explanation:
    """Says which backend `auto` runs for a call of `scan`, and why not the others.

    No kernel is built for it. The C++ compiler is tried on a small program, once per compiler: if it fails, or its
    libraries do not load, `compiled` cannot run unless its kernel is in the cache.

    >>> delta = Cell.from_name("delta")
    >>> q, k, v = torch.randn(3, 2, 5, 4, 8).unbind()
    >>> print(explain(delta, delta.Inputs(q, k, v, beta=torch.rand(2, 5, 4))))
    delta, B=2 T=5 H=4 K=8 V=8, float32 on cpu
      compiled   runs
      chunkwise  could run: W <- W - W e f^T + v k^T
      reference  could run
    """
    problem = pose(Cell.from_function(cell), inputs, state, params, reset, lengths, initial)
    refusals = {name: MODULES[name].refusal(problem, build=False) for name in _order(problem)}
    chosen = next(name for name, refusal in refusals.items() if not refusal)
    reasons = {}
    for name, refusal in refusals.items():
        how = "" if refusal else MODULES[name].told(problem)
        does = "runs" if name == chosen else "could run"
        reasons[name] = f"cannot: {refusal}" if refusal else f"{does}: {how}" if how else does
    return Explanation(str(problem), chosen, reasons)


def _choose(problem: Problem, backend: str) -> str:
    if backend == "auto":
        return _choose_fastest(problem)
    require_backend(backend)
    refusal = MODULES[backend].refusal(problem, build=True)
    require(not refusal, "backend", "one that can run this", f"'{backend}': {refusal}", "Use backend='auto'.")
    return backend


def _choose_fastest(problem: Problem) -> str:
    for name in _order(problem):
        refusal = MODULES[name].refusal(problem, build=True)
        if not refusal:
            return name
        if not torch.compiler.is_compiling():
            _log_once(f"{name} is passed over: {refusal}")
    raise AssertionError("the reference refuses nothing")


def _order(problem: Problem) -> list[str]:
    """The backends in the order in which `auto` tries them for a problem: the cheapest first, by what each says."""
    return sorted(MODULES, key=lambda name: MODULES[name].cost(problem))


@cache
def _log_once(message: str) -> None:
    log.warning(message)
