"""Memories as functions, with the argument names, layouts and defaults of flash-linear-attention.

q, k `[B, T, H, K]`, v `[B, T, H, V]`, beta and g `[B, T, H]`, or g `[B, T, H, K]` where every feature of the keys fades
by itself; states `[B, H, K, V]`, float32 unless the inputs are float64. `scale` multiplies the queries: a number, a
tensor `[]` or `[H]`, which may need gradients, or K^-0.5 if None.
Unlike there, any device, float32 and float64 work, gradients reach `initial_state`, and `reset`, bool `[B, T]`, begins
a new sequence before a step. With `cu_seqlens`, int `[N + 1]`, one member of a batch holds N sequences, one behind the
other, and states are `[N, H, K, V]`, one a sequence.
With `state_out`, where no gradients are wanted, the final state is written there and returned; it may be
`initial_state`, which is then updated in place.
"""

import types
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from fastweights.cell import Cell, MemoryState
from fastweights.core.arguments import fit
from fastweights.core.autocast import PRECISIONS
from fastweights.core.errors import require
from fastweights.core.family import family
from fastweights.core.packing import SequenceGroup, alike, check_packed, in_order, pack, starts
from fastweights.core.padding import remedy_for
from fastweights.dispatch import scan
from fastweights.normalisers.l2 import l2
from fastweights.signature import KeyDecay, RawKey, TensorSpec, Value

Result = tuple[Tensor, Tensor | None]


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reset: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state_out: Tensor | None = None,
) -> Result:
    """W <- W + v k^T, o = scale W q: the sum rule, without a normaliser.

    Source: Katharopoulos et al. 2020; Schlag et al. 2021, Eq. 17.
    """
    return _run(("sum", False), (q, k, v), scale, initial_state, output_final_state, reset, cu_seqlens, state_out)


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    reset: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state_out: Tensor | None = None,
) -> Result:
    """W <- W + beta (v - W k) k^T, o = scale W q.

    Source: Schlag et al. 2021, Eq. 24; Yang et al. 2024.
    """
    memory = "delta", use_qk_l2norm_in_kernel
    return _run(memory, (q, k, v, beta), scale, initial_state, output_final_state, reset, cu_seqlens, state_out)


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    reset: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state_out: Tensor | None = None,
) -> Result:
    """W <- exp(g) W + beta (v - exp(g) W k) k^T, o = scale W q, with g <= 0 the logarithm of the decay.

    Source: Yang et al. 2024 (Gated DeltaNet), Eq. 10.
    """
    memory = "gated-delta", use_qk_l2norm_in_kernel
    return _run(memory, (q, k, v, g, beta), scale, initial_state, output_final_state, reset, cu_seqlens, state_out)


def kimi_delta_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    reset: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state_out: Tensor | None = None,
) -> Result:
    """W <- M + beta (v - M k) k^T with M = W diag(exp(g)), o = scale W q; g `[B, T, H, K]` is at most 0.

    Source: Kimi Team 2025 (Kimi Linear).
    """
    memory = "kda", use_qk_l2norm_in_kernel
    return _run(memory, (q, k, v, g, beta), scale, initial_state, output_final_state, reset, cu_seqlens, state_out)


def gated_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reset: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state_out: Tensor | None = None,
) -> Result:
    """W <- W diag(exp(g)) + v k^T, o = scale W q, g `[B, T, H, K]`; with k = 1 - exp(g) it is HGRN2.

    Source: Yang et al. 2024 (Gated Linear Attention Transformers); Qin et al. 2024 (HGRN2).
    """
    return _run(("gla", False), (q, k, v, g), scale, initial_state, output_final_state, reset, cu_seqlens, state_out)


def rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | Tensor | None = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reset: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state_out: Tensor | None = None,
) -> Result:
    """W <- W diag(exp(w)) + (W a) b^T + v k^T, o = scale W r; all but v are `[B, T, H, K]`.

    What is removed, (W a) b^T, is read before W fades; RWKV-7 has a = -u, b = rate * u for a u of length 1.

    Source: Peng et al. 2025 (RWKV-7).
    """
    memory = f"{__name__}:_removing", False
    return _run(memory, (r, k, v, a, b, w), scale, initial_state, output_final_state, reset, cu_seqlens, state_out)


class _Removal(NamedTuple):
    r: RawKey
    k: RawKey
    v: Value
    a: RawKey
    b: RawKey
    w: KeyDecay


def _removing(state: MemoryState, x: _Removal) -> tuple[MemoryState, Value]:
    """The cell `rwkv7` for any a and b: a layer would not hold their product to what it removes."""
    W = state.W * x.w + torch.outer(state.W @ x.a, x.b) + torch.outer(x.v, x.k)
    return MemoryState(W), W @ x.r


class _State(NamedTuple):
    S: Annotated[Tensor, TensorSpec("K V", "memory")]


def _run(
    memory: tuple[str, bool],
    given: tuple[Tensor, ...],
    scale: float | Tensor | None,
    initial_state: Tensor | None,
    output_final_state: bool,
    reset: Tensor | None,
    cu_seqlens: Tensor | None,
    state_out: Tensor | None,
) -> Result:
    _require_flag("output_final_state", output_final_state)
    _require_flag("use_qk_l2norm_in_kernel", memory[1])
    cell = _cell(*memory, scale is not None)
    wanted = output_final_state or state_out is not None
    if cu_seqlens is not None:
        check_packed(cu_seqlens, given[0])
        require(reset is None, "reset", "None where cu_seqlens is given", "both", "They say the same.")
        if initial_state is not None or wanted:
            o, last = _scan_packed(cell, given, scale, initial_state, cu_seqlens, state_out)
            return o, last if wanted else None
        reset = starts(cu_seqlens, given[0].shape[1])
    o, last = _scan(cell, given, scale, initial_state, reset, None, state_out)
    return o, last if wanted else None


def _scan_packed(
    cell: Cell,
    given: tuple[Tensor, ...],
    scale: float | Tensor | None,
    initial_state: Tensor | None,
    cu_seqlens: Tensor,
    state_out: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Sequences with a state each, side by side."""
    everybody = [torch.arange(len(cu_seqlens) - 1, device=cu_seqlens.device)]
    # States are written over all at once.
    groups = [SequenceGroup.of(cu_seqlens, one) for one in (alike(cu_seqlens) if state_out is None else everybody)]
    if len(groups) == 1:
        (group,) = groups
        inputs = tuple(map(group.unpack, given))
        o, last = _scan(cell, inputs, scale, initial_state, None, group.lengths, state_out)
        return pack(groups, [o]), last
    _require_state("initial_state", initial_state, given, len(everybody[0]))
    found = []
    for group in groups:
        start = None if initial_state is None else initial_state[group.chosen]
        found.append(_scan(cell, tuple(map(group.unpack, given)), scale, start, None, group.lengths, None))
    outputs, states = zip(*found, strict=True)
    return pack(groups, outputs), in_order(groups, states)


def _scan(
    cell: Cell,
    given: tuple[Tensor, ...],
    scale: float | Tensor | None,
    initial_state: Tensor | None,
    reset: Tensor | None,
    lengths: Tensor | None,
    state_out: Tensor | None,
) -> tuple[Tensor, Tensor]:
    q = given[0]
    inputs: Callable[..., Any] = cell.Inputs
    _require_axes(cell, given)
    if scale is not None:
        given = (*given, _factor(scale, q))
    _require_state("initial_state", initial_state, given, len(q))
    if state_out is not initial_state:
        _require_state("state_out", state_out, given, len(q))
    state = None if initial_state is None else _State(initial_state)
    out = None if state_out is None else state if state_out is initial_state else _State(state_out)
    o, last = scan(cell, inputs(*given), state, reset=reset, lengths=lengths, state_out=out)
    return o if o.dtype == q.dtype else o.to(q.dtype), last.S


def _require_flag(name: str, value: bool) -> None:
    if value is not True and value is not False:
        fit(name, value, bool)


def _require_axes(cell: Cell, given: tuple[Tensor, ...]) -> None:
    """`InputError` unless queries, keys and values have the axes that the code in front of `scan` reads."""
    for name, x in zip(cell.Inputs._fields, given, strict=False):  # type: ignore[attr-defined]
        if not isinstance(x, Tensor):
            require(False, name, "a tensor", type(x).__name__, remedy_for(x, name))
    for name, x in zip(cell.Inputs._fields, given[:3], strict=False):  # type: ignore[attr-defined]
        if x.ndim != 4:
            require(False, name, "[B, T, H, .]", list(x.shape), "Give batch, time and heads an axis each.")


def _factor(scale: float | Tensor, q: Tensor) -> Tensor:
    """The factor on all queries `[B, T, H]`, which is not rounded to half precision."""
    dtype, H = torch.promote_types(q.dtype, torch.float32), q.shape[2]
    if not isinstance(scale, Tensor):
        number = scale if type(scale) is float else fit("scale", scale, float)
        scale = torch.full((), number, dtype=dtype, device=q.device)
    fits = scale.dtype in PRECISIONS and (scale.ndim == 0 or tuple(scale.shape) == (H,))
    if not fits or scale.device != q.device:
        wanted = f"a number, or a floating tensor [] or [H] with H={H} on {q.device}"
        require(False, "scale", wanted, f"{scale.dtype} {list(scale.shape)} on {scale.device}")
    return scale.to(dtype).expand(q.shape[:3])


def _require_state(name: str, state: Tensor | None, given: tuple[Tensor, ...], sequences: int) -> None:
    """`InputError` under the name that a caller knows, where `scan` would say S."""
    q, _, v = given[:3]
    if state is not None:
        require(isinstance(state, Tensor), name, "a tensor", type(state).__name__)
        shape = (sequences, q.shape[2], q.shape[3], v.shape[3])
        # A step takes microseconds: no message is made that nobody reads.
        if state.shape != shape:
            require(False, name, f"[N, H, K, V] = {list(shape)}", list(state.shape))


CELLS = types.SimpleNamespace()
"""Cells by name. `torch.compile` keeps no such object as the answer of a function, but finds it here."""


def _cell(name: str, unit: bool, scaled: bool) -> Cell:
    found: Cell = getattr(CELLS, _name_of_cell(name, unit, scaled))
    return found


def _name_of_cell(name: str, unit: bool, scaled: bool) -> str:
    return _named(name, unit, scaled)


# As by torch.compiler.assume_constant_result, whose import would take seconds: a trace calls it and keeps the answer.
_name_of_cell._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _named(name: str, unit: bool, scaled: bool) -> str:
    under = f"{name}, {unit}, {scaled}".replace(".", "/")
    setattr(CELLS, under, Cell.from_function(_laid_out(name, unit, scaled)))
    return under


NAMES = {"decay": "g"}
"""Names of inputs that the functions have other names for, which an error message gives."""


@family
def _laid_out(name: str, unit: bool, scaled: bool) -> Callable[..., Any]:
    """The step of a memory whose state lies as it does there, keys before values, and whose inputs are made inside.

    A kernel reads inputs and state as they come and writes the state as it goes out: for one step, turning it over
    would take longer than the step. Keys and queries get length 1 if `unit`; decays are logarithms. The factor on the
    queries is an input if `scaled`, else K^-0.5.
    """
    inside = Cell.from_function(name)
    makes: dict[str, Callable[[Tensor], Tensor]] = {"key": l2 if unit else _as_it_is, "decay": torch.exp}
    made = tuple(makes.get(slot.kind, _as_it_is) for slot in inside.slots["Inputs"].values())
    # By themselves, and in a tuple: of what cannot change, a call need not ask what it is now.
    run, Instructions = inside.step, inside.Inputs
    fields = [(NAMES.get(field, field), Annotated[Tensor, slot]) for field, slot in inside.slots["Inputs"].items()]
    factor = [("scale", Annotated[Tensor, TensorSpec("", "value")])] if scaled else []
    Inputs = NamedTuple("Inputs", [*fields, *factor])  # type: ignore[misc]

    def prepare(x: Any) -> Any:
        q, *rest = [make(value) for make, value in zip(made, x, strict=False)]
        return Instructions(q * (x.scale[..., None] if scaled else q.shape[-1] ** -0.5), *rest)

    def step(state: _State, x: Any) -> tuple[_State, Tensor]:
        after, y = run(MemoryState(state.S.mT), prepare(x))
        return _State(after.W.mT), y

    step.__annotations__ |= {
        "x": Inputs,
        "return": types.GenericAlias(tuple, (_State, Annotated[Tensor, inside.output])),
    }
    step.__name__, step.__doc__ = inside.name.replace("-", "_"), inside.summary
    return step


def _as_it_is(x: Tensor) -> Tensor:
    return x
