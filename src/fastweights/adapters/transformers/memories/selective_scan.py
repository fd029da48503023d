"""The selective scan of Mamba, FalconMamba, Jamba and Zamba."""

from collections.abc import Iterable
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from fastweights.adapters.transformers.replacement import (
    Draw,
    Replacement,
    SampleCall,
    in_heads,
    is_on_cpu,
    scan_in_place,
)
from fastweights.cell import Cell
from fastweights.cells.selective_scan import (
    SelectiveScanInputs,
    SelectiveScanParams,
    SelectiveScanState,
    selective_scan,
)
from fastweights.core.autocast import at_least_float32
from fastweights.core.grad_mode import wants_gradients
from fastweights.dispatch import scan
from fastweights.signature import TensorSpec, Value


class _Params(NamedTuple):
    A: Annotated[Tensor, TensorSpec("V K", "weight")]
    D: Annotated[Tensor, TensorSpec("V", "gain")]


def _with_A(state: SelectiveScanState, x: SelectiveScanInputs, params: _Params) -> tuple[SelectiveScanState, Value]:
    """The step of `selective_scan` with A in place of the rates -A, which no call computes then."""
    return selective_scan(state, x, SelectiveScanParams(-params.A, params.D))


CELL = Cell.from_function(_with_A)


def _scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = True,
    return_last_state: bool = False,
    **_: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """A whole sequence: hidden_states, dt and z `[B, D, T]`; B and C `[B, N, T]`."""
    x, dt, B, C = (sequence.transpose(1, 2) for sequence in (hidden_states, dt, B, C))
    y, last = scan_channels(x, dt, A, B, C, D, delta_bias)
    y = _gated(y.transpose(1, 2).to(torch.promote_types(hidden_states.dtype, D.dtype)), z)
    return (y, last) if return_last_state else y


def scan_channels(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    bias: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The output `[B, T, D]` and the last state `[B, D, N]`, for x and dt `[B, T, D]`, B and C `[B, T, N]`.

    Args:
        x: Inputs.
        dt: Step sizes before the softplus.
        A: Rates, `[D, N]`; negative.
        B: Keys.
        C: Queries.
        D: Gains of the inputs in the output, `[D]`.
        bias: Added to dt, `[D]`.
        state: The state before x, `[B, D, N]`; zeros if None.
    """
    params = _Params(*_params(A, D))
    before = None if state is None else CELL.State(at_least_float32(state).unflatten(1, params.D.shape))
    y, last = scan(CELL, _inputs([x, dt, B, C], bias), before, params)
    return y.flatten(2), last.W.flatten(1, 2)


def _step(
    state: Tensor,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = True,
    z: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """One token: hidden_states, dt and z `[B, D]`; B and C `[B, N]`; state `[B, D, N]` is changed in place."""
    if state.numel() < SMALL and state.dtype == torch.float32:
        x, dt, A, B, C, D = map(at_least_float32, (hidden_states, dt, A, B, C, D))
        y = _small_step(state, x, dt, A, B, C, D, dt_bias)
        return _gated(y, z).to(hidden_states.dtype)
    inputs = _inputs([x[:, None] for x in (hidden_states, dt, B, C)], dt_bias)
    A, D = _params(A, D)
    y = scan_in_place(CELL, inputs, state.unflatten(1, A.shape[:2]), _Params(A, D))
    return _gated(y.flatten(1), z).to(hidden_states.dtype)


SMALL = 1 << 15
"""Numbers of a state below which a step in PyTorch is faster than the call of a kernel."""


def _small_step(
    state: Tensor, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, bias: Tensor | None
) -> Tensor:
    """The same step in PyTorch, with half of the operations of transformers: the state is updated in place."""
    dt = softplus(dt if bias is None else dt + bias)
    state.mul_((dt[..., None] * A).exp_()).addcmul_((dt * x)[..., None], B[:, None])
    return torch.addcmul((state @ C[..., None])[..., 0], x, D)


def _inputs(sequences: Iterable[Tensor], bias: Tensor | None) -> SelectiveScanInputs:
    """The inputs of the cell from x, dt, B and C. All heads read the same B and C, which are not copied.

    The models make dt with adjacent time steps. It is copied once, so that softplus and its gradient read rows.
    """
    x, dt, B, C = sequences
    x, dt = in_heads(x), at_least_float32(dt).contiguous()
    dt = in_heads(softplus(dt if bias is None else dt + bias))
    q, k = (u[:, :, None].expand(-1, -1, x.shape[2], -1) for u in (C, B))
    return SelectiveScanInputs(q, k, x, dt)


def _params(A: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    D = in_heads(D)
    return A.unflatten(0, D.shape), D


def _gated(y: Tensor, z: Tensor | None) -> Tensor:
    return y if z is None else y * silu(z)


def _fits_scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    **_: Any,
) -> bool:
    return is_on_cpu(hidden_states) and D is not None and delta_softplus


def _fits_step(
    state: Tensor,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    z: Tensor | None = None,
    **_: Any,
) -> bool:
    is_simple = is_on_cpu(state) and D is not None and dt_softplus
    return is_simple and not wants_gradients([state, hidden_states, dt, A, B, C])


def _trial_scans(_: ModuleType, draw: Draw) -> list[SampleCall]:
    b, T, d, N = 1, 5, 64, 16
    x, dt, z = (draw(b, d, T) - 0.5 for _ in range(3))
    B, C = (draw(b, N, T) - 0.5 for _ in range(2))
    options = {"D": draw(d), "z": z, "delta_bias": draw(d), "delta_softplus": True}
    return [SampleCall((x, dt, -draw(d, N), B, C), {**options, "return_last_state": last}) for last in (False, True)]


def _trial_steps(_: ModuleType, draw: Draw) -> list[SampleCall]:
    b, d, N = 1, 64, 16
    x, dt, z = (draw(b, d) - 0.5 for _ in range(3))
    B, C = (draw(b, N) - 0.5 for _ in range(2))
    options = {"z": z, "dt_bias": draw(d), "dt_softplus": True}
    return [SampleCall((draw(b, d, N) - 0.5, x, dt, -draw(d, N), B, C, draw(d)), options, in_place=True)]


SCAN = Replacement(
    "mamba_selective_scan",
    "the selective scan of Mamba",
    ("hidden_states", "dt", "A", "B", "C", "D", "z", "delta_bias", "delta_softplus", "return_last_state"),
    frozenset(),
    _fits_scan,
    _scan,
    _trial_scans,
)
STEP = Replacement(
    "mamba_selective_state_update",
    "the selective scan of Mamba",
    ("state", "hidden_states", "dt", "A", "B", "C", "D", "dt_bias", "dt_softplus", "z"),
    frozenset(),
    _fits_step,
    _step,
    _trial_steps,
)
