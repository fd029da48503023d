"""The state space duality (SSD) of Mamba-2 and its relatives."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from fastweights.adapters.transformers.groups import Groups, per_head
from fastweights.adapters.transformers.packed_rows import is_packed, resets
from fastweights.adapters.transformers.replacement import (
    Draw,
    Replacement,
    SampleCall,
    is_on_cpu,
    runs_in_chunks,
    scan_in_place,
)
from fastweights.cell import Cell
from fastweights.core.autocast import at_least_float32
from fastweights.core.grad_mode import wants_gradients
from fastweights.dispatch import scan

CELL = Cell.from_name("hebbian")


def chunk_scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """A whole sequence: hidden_states `[B, T, H, P]`, dt `[B, T, H]`, B and C `[B, T, G, N]` for H / G heads each.

    Packed sequences do not see each other.
    """
    (b, T, H, _), G = hidden_states.shape, B.shape[2]
    x, dt = at_least_float32(hidden_states), _step_sizes(dt, dt_bias, dt_softplus).clamp(*dt_limit)
    groups, (B, C) = Groups(b, G), map(at_least_float32, (B, C))
    inputs = CELL.Inputs(groups.shared(C, H), groups.shared(B, H), *map(groups.split, (x, torch.exp(A * dt), dt)))
    before = None if initial_states is None else CELL.State(groups.split_state(at_least_float32(initial_states)))
    y, last = scan(CELL, inputs, before, reset=groups.rows(resets(options, b, T)))
    y = groups.merged(y)
    y = y if D is None else y + D[:, None] * x
    return (y, groups.merged_state(last.W)) if return_final_states else y


def _step(
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
) -> Tensor:
    """One token: hidden_states, dt and z `[B, H, P]`, B and C `[B, G, N]`; state `[B, H, P, N]` is changed in place.

    transformers repeats numbers of a head: dt, dt_bias and D over P, and A over P and N.
    """
    H = hidden_states.shape[1]
    dt = _step_sizes(dt[..., 0], None if dt_bias is None else dt_bias[..., 0], dt_softplus)
    decay = torch.exp(A[:, 0, 0] * dt)
    inputs = CELL.Inputs(per_head(C, H), per_head(B, H), *(x[:, None] for x in (hidden_states, decay, dt)))
    y = scan_in_place(CELL, inputs, state)[:, 0]
    y = y if D is None else y + hidden_states * D
    return (y if z is None else y * silu(z)).to(hidden_states.dtype)


def _no_fused_layer(*_: Any, **__: Any) -> None:
    """No output of a fused layer, as without its package: the layer then calls the functions for its parts.

    The original refuses packed sequences, which these functions keep apart.
    """


def _fits_fused_layer(projected: Tensor, *_: Any, **__: Any) -> bool:
    return runs_in_chunks(projected)


def _step_sizes(dt: Tensor, bias: Tensor | None, is_raw: bool) -> Tensor:
    dt = at_least_float32(dt)
    dt = dt if bias is None else dt + bias
    return softplus(dt) if is_raw else dt


def _fits_scan(hidden_states: Tensor, *_: Any, **__: Any) -> bool:
    return runs_in_chunks(hidden_states)


def _fits_step(state: Tensor, *arguments: Tensor, **options: Any) -> bool:
    is_simple = is_on_cpu(state) and not is_packed(options)
    return is_simple and not wants_gradients([state, *arguments[:5]])


def _trial_scans(_: ModuleType, draw: Draw) -> list[SampleCall]:
    b, T, H, P, G, N = 1, 5, 4, 64, 2, 128
    x, state = draw(b, T, H, P) - 0.5, draw(b, H, P, N) - 0.5
    B, C = (draw(b, T, G, N) - 0.5 for _ in range(2))
    arguments = (x, draw(b, T, H) - 0.5, -draw(H), B, C, 4)
    options = {"D": draw(H), "dt_bias": draw(H), "dt_softplus": True, "dt_limit": (0.3, 1.0)}
    return [
        SampleCall(arguments, options),
        SampleCall(arguments, {**options, "initial_states": state, "return_final_states": True}),
    ]


def _trial_steps(_: ModuleType, draw: Draw) -> list[SampleCall]:
    b, H, P, G, N = 1, 4, 64, 2, 128
    x, z, state = draw(b, H, P) - 0.5, draw(b, H, P) - 0.5, draw(b, H, P, N) - 0.5
    B, C = (draw(b, G, N) - 0.5 for _ in range(2))
    dt, A = draw(b, H)[..., None].expand(b, H, P), -draw(H)[:, None, None].expand(H, P, N)
    D, bias = (draw(H)[:, None].expand(H, P) for _ in range(2))
    return [SampleCall((state, x, dt, A, B, C, D), {"z": z, "dt_bias": bias, "dt_softplus": True}, in_place=True)]


SCAN = Replacement(
    "mamba2_chunk_scan",
    "the SSD of Mamba-2",
    ("hidden_states", "dt", "A", "B", "C", "chunk_size", "D", "dt_bias", "initial_states", "dt_softplus", "dt_limit"),
    frozenset({"return_final_states"}),
    _fits_scan,
    chunk_scan,
    _trial_scans,
)
FUSED_LAYER = Replacement(
    "mamba2_split_conv1d_scan_combined",
    "the SSD of Mamba-2",
    ("zxbcdt", "conv1d_weight", "conv1d_bias", "dt_bias", "A", "D", "chunk_size"),
    frozenset(),
    _fits_fused_layer,
    _no_fused_layer,
    lambda _, draw: [SampleCall((draw(1), None, None, None, None, None, 4))],
)
STEP = Replacement(
    "mamba2_selective_state_update",
    "the SSD of Mamba-2",
    ("state", "hidden_states", "dt", "A", "B", "C", "D", "dt_bias", "dt_softplus", "z"),
    frozenset(),
    _fits_step,
    _step,
    _trial_steps,
)
