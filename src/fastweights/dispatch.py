"""Scans of a cell over time: `scan`, and `explain`, which describes the choice of a backend."""

import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.call.plan import CallPlan, plan_of
from fastweights.call.scan_call import ScanCall, prepare, scan_call
from fastweights.call.state_out import check_needs_no_gradient, check_separate_memory, put
from fastweights.call.tensors import Tensors
from fastweights.cell import Cell
from fastweights.core.autocast import full_precision
from fastweights.core.errors import invalid, require_name
from fastweights.registry import BACKENDS

# Imported here once: `torch.compile` traces `scan`, which must not contain an import.
MODULES = {name: import_module(f"fastweights.backends.{name}") for name in BACKENDS.names()}

WATCHERS: list[Callable[[ScanCall], None]] = []
"""Functions that receive every call before it runs: see `fastweights.inspect`."""

log = logging.getLogger("fastweights")


class Explanation(NamedTuple):
    """The backend that runs a call, and the reasons against the others."""

    call: str
    chosen: str
    reasons: dict[str, str]

    def __str__(self) -> str:
        return "\n".join([self.call, *(f"  {name:<10} {reason}" for name, reason in self.reasons.items())])


def scan(
    cell: str | Cell | Callable[..., Any],
    inputs: Any,
    state: Any = None,
    params: Any = None,
    reset: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_state: Any = None,
    backend: str = "auto",
    state_out: Any = None,
) -> tuple[Tensor, Any]:
    """Runs a cell over time, for every member of the batch and every head.

        state_t, y_t = step(state_(t-1), x_t)

    Args:
        cell: Step `(state, x) -> (state, y)`, rule `(W, ...) -> W`, name or `Cell`, as in `Cell.from_function`.
        inputs: `cell.Inputs` of tensors `[B, T, H, ...]`. Half precision is computed in float32.
        state: `cell.State` of tensors `[B, H, ...]` before the first time step. None: the initial state.
        params: `cell.Params` of tensors `[H, ...]`, for cells with slow weights inside the step.
        reset: Resets, bool `[B, T]`. Where True, the state returns to the initial state before the time step.
        lengths: Number of time steps of each member, int `[B]`, from 0 to T. The rest is padding: its inputs are not
            read, and its y is 0. On a GPU the values are not checked, since that needs a synchronisation; larger values
            count as T.
        initial_state: `cell.State` of tensors `[H, ...]`, the initial state of every head. None: zeros.
        backend: "auto" for the fastest backend that can run the call, or the name of a backend, which runs or raises.
        state_out: `cell.State` of contiguous tensors `[B, H, ...]` that receives the final state, without gradients. It
            may be `state`, which is then updated in place: for one time step with a large state, that halves the time.
            It must not share memory with any other argument.

    Returns:
        The output y `[B, T, H, V]` in the dtype of the inputs, and the state after the last time step of each member,
        in float32 or float64. The state is `state_out` if it is set.

    Raises:
        InputError: an input does not fit the cell, or the backend cannot run it.

    Example:
        >>> delta = Cell.from_name("delta")
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8).unbind()
        >>> y, state = scan(
        ...     delta, delta.Inputs(q, k.softmax(-1), v, beta=torch.rand(2, 5, 4))
        ... )
        >>> y.shape, state.W.shape
        (torch.Size([2, 5, 4, 8]), torch.Size([2, 4, 8, 8]))
    """
    cell = Cell.from_function(cell)
    if not isinstance(backend, str):
        require_backend(backend)
    tensors = Tensors(inputs, state, params, reset, lengths, initial_state)
    plan = plan_of(cell, tensors, state_out)
    if state_out is not None:
        check_separate_memory(state_out, state, [*inputs, *(params or ()), *(initial_state or ())])
    fast_path = None if WATCHERS else plan.fast_paths.get(backend)
    result = None if fast_path is None else fast_path(tensors, state_out)
    if result is None:
        result = _run(plan, tensors, state_out, backend)
    return result if state_out is None else (result[0], put(result[1], state_out))


def _run(plan: CallPlan, tensors: Tensors, state_out: Any, backend: str) -> tuple[Tensor, Any]:
    """Runs a call by the chosen backend, and stores the fast path of that backend for calls of the same signature."""
    if state_out is not None:
        check_needs_no_gradient(state_out, tensors.all())
    call = prepare(plan, tensors, state_out)
    for watcher in WATCHERS:
        watcher(call)
    # An autocast region must not turn the sums of a scan into half precision.
    with full_precision(plan.device):
        chosen = _choose(call, backend)
        result: tuple[Tensor, Any] = MODULES[chosen].run(call)
    if backend not in plan.fast_paths or plan.fast_paths[backend] is not None:
        # "auto" chooses again as long as a faster backend may become able to run the call.
        is_final = backend != "auto" or chosen == plan.order[0]
        plan.fast_paths[backend] = MODULES[chosen].fast_path(call) if is_final else None
    return result


def require_backend(backend: str) -> None:
    """Raises `InputError` unless `backend` is "auto" or the name of a backend."""
    require_name("backend", backend, ["auto", *MODULES])


def run_call(call: ScanCall, backend: str) -> tuple[Tensor, Any]:
    """Runs a call that has been checked by a backend, without a fast path."""
    result: tuple[Tensor, Any] = MODULES[_choose(call, backend)].run(call)
    return result


def explain(
    cell: str | Cell | Callable[..., Any],
    inputs: Any,
    state: Any = None,
    params: Any = None,
    reset: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_state: Any = None,
) -> Explanation:
    """Explains which backend "auto" chooses for a call of `scan`, and why the others are not chosen.

    No kernel is built. The C++ compiler is tried on a small program, once per compiler. If it fails, or its libraries
    do not load, the backend "compiled" needs a kernel in the cache.

    Args:
        cell: Cell, as in `scan`.
        inputs: `cell.Inputs` of tensors `[B, T, H, ...]`.
        state: `cell.State` of tensors `[B, H, ...]`. None: the initial state.
        params: `cell.Params` of tensors `[H, ...]`, for cells with slow weights inside the step.
        reset: Resets, bool `[B, T]`.
        lengths: Number of time steps of each member, int `[B]`.
        initial_state: `cell.State` of tensors `[H, ...]`. None: zeros.

    Returns:
        The explanation, with the `chosen` backend and the `reasons` by backend. `print` shows a table.

    Raises:
        InputError: an input does not fit the cell.

    Example:
        >>> delta = Cell.from_name("delta")
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8).unbind()
        >>> print(explain(delta, delta.Inputs(q, k, v, beta=torch.rand(2, 5, 4))))
        delta, B=2 T=5 H=4 K=8 V=8, float32 on cpu
          compiled   runs
          chunkwise  could run: W <- W - W e f^T + v k^T
          reference  could run
    """
    call = scan_call(Cell.from_function(cell), Tensors(inputs, state, params, reset, lengths, initial_state))
    unsupported = {name: MODULES[name].unsupported_reason(call, build=False) for name in _order(call)}
    chosen = next(name for name, reason in unsupported.items() if not reason)
    reasons = {}
    for name, reason in unsupported.items():
        details = "" if reason else MODULES[name].describe(call)
        does = "runs" if name == chosen else "could run"
        reasons[name] = f"cannot: {reason}" if reason else f"{does}: {details}" if details else does
    return Explanation(str(call), chosen, reasons)


def _choose(call: ScanCall, backend: str) -> str:
    if backend == "auto":
        return _choose_fastest(call)
    require_backend(backend)
    reason = MODULES[backend].unsupported_reason(call, build=True)
    if reason:
        raise invalid("backend", "a backend that can run this call", f"'{backend}': {reason}", "Use backend='auto'.")
    return backend


def _choose_fastest(call: ScanCall) -> str:
    for name in _order(call):
        reason = MODULES[name].unsupported_reason(call, build=True)
        if not reason:
            return name
        if not torch.compiler.is_compiling():
            _log_once(f"{name} is passed over: {reason}")
    raise AssertionError("the reference backend supports every call")


def _order(call: ScanCall) -> list[str]:
    """The backends in the order in which `auto` tries them: by their costs, which are computed once per plan."""
    if not call.plan.order:
        call.plan.order[:] = sorted(MODULES, key=lambda name: MODULES[name].cost(call))
    return call.plan.order


@cache
def _log_once(message: str) -> None:
    log.warning(message)
