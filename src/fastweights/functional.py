"""Memories as functions, with the argument names, layouts and defaults of flash-linear-attention.

Unlike in flash-linear-attention, the functions run on any device, in float32 and float64, and gradients reach
`initial_state`. Half precision is computed in float32.
"""

import types
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from fastweights.cell import Cell, MemoryState
from fastweights.core.arguments import convert_argument
from fastweights.core.autocast import PRECISIONS
from fastweights.core.docstrings import shares
from fastweights.core.errors import invalid
from fastweights.core.family import family
from fastweights.core.packing import SequenceGroup, check_packed, group_by_length, in_order, pack, starts
from fastweights.core.padding import remedy_for
from fastweights.core.traced_constant import traced_constant
from fastweights.dispatch import scan
from fastweights.normalisers.l2 import l2
from fastweights.signature import Decay, KeyDecay, RawKey, TensorSpec, Value

OutputAndState = tuple[Tensor, Tensor | None]

SHARED = """
Args:
    q: Queries `[B, T, H, K]`.
    k: Keys `[B, T, H, K]`.
    v: Values `[B, T, H, V]`.
    g: Logarithm of the decay, at most 0: `[B, T, H]`.
    beta: Rates of the writes, `[B, T, H]`.
    scale: Factor on the queries: a number, or a tensor `[]` or `[H]`, which may need gradients. None: `K**-0.5`.
    initial_state: Initial state `[B, H, K, V]`, in float32, or float64 if the inputs are float64. None: zeros.
    output_final_state: Whether the final state is returned.
    use_qk_l2norm_in_kernel: Whether queries and keys are normalised to length 1.
    reset: Resets, bool `[B, T]`. Where True, the state returns to zero before the time step.
    cu_seqlens: Boundaries of N packed sequences, int `[N + 1]`, for a batch of one. States are then `[N, H, K, V]`, one
        per sequence.
    state_out: Tensor that receives the final state, without gradients. It may be `initial_state`, which is then updated
        in place.

Returns:
    The outputs o `[B, T, H, V]` in the dtype of q, and the final state `[B, H, K, V]`. The state is None unless
    `output_final_state` or `state_out` is set.
"""
"""Descriptions of the arguments that the functions share."""


@shares(SHARED)
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
) -> OutputAndState:
    """Linear attention without a normaliser: the sum rule.

        W <- W + v k^T
        o = scale W q

    Source: Katharopoulos et al. 2020 (arXiv:2006.16236); Schlag et al. 2021 (arXiv:2102.11174), Eq. 17.

    Example:
        >>> q, k, v = torch.randn(3, 2, 10, 4, 8).unbind()
        >>> o, state = linear_attention(q, k, v, output_final_state=True)
        >>> o.shape, state.shape
        (torch.Size([2, 10, 4, 8]), torch.Size([2, 4, 8, 8]))
    """
    options = _Options(scale, initial_state, output_final_state, reset, cu_seqlens, state_out)
    return _run("sum", (q, k, v), options)


@shares(SHARED)
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
) -> OutputAndState:
    """Delta rule (DeltaNet).

        W <- W + beta (v - W k) k^T
        o = scale W q

    Source: Schlag et al. 2021 (arXiv:2102.11174), Eq. 24; Yang et al. 2024 (arXiv:2406.06484).

    Example:
        >>> q, k, v = torch.randn(3, 2, 10, 4, 8).unbind()
        >>> beta = torch.rand(2, 10, 4)
        >>> o, state = delta_rule(
        ...     q, k, v, beta, use_qk_l2norm_in_kernel=True, output_final_state=True
        ... )
        >>> o.shape, state.shape
        (torch.Size([2, 10, 4, 8]), torch.Size([2, 4, 8, 8]))
    """
    options = _Options(scale, initial_state, output_final_state, reset, cu_seqlens, state_out)
    return _run("delta", (q, k, v, beta), options, use_qk_l2norm_in_kernel)


@shares(SHARED)
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
) -> OutputAndState:
    """Gated delta rule (Gated DeltaNet), with one decay per head.

        M = exp(g) W
        W <- M + beta (v - M k) k^T
        o = scale W q

    Source: Yang et al. 2024 (Gated DeltaNet, arXiv:2412.06464), Eq. 10.

    Example:
        >>> q, k, v = torch.randn(3, 2, 10, 4, 8).unbind()
        >>> g, beta = -torch.rand(2, 10, 4), torch.rand(2, 10, 4)
        >>> o, state = gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)
        >>> o.shape
        torch.Size([2, 10, 4, 8])
    """
    options = _Options(scale, initial_state, output_final_state, reset, cu_seqlens, state_out)
    return _run("gated-delta", (q, k, v, g, beta), options, use_qk_l2norm_in_kernel)


@shares(SHARED)
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
) -> OutputAndState:
    """Kimi Delta Attention (KDA): gated delta rule with one decay per key feature.

        M = W diag(exp(g))
        W <- M + beta (v - M k) k^T
        o = scale W q

    Source: Kimi Team 2025 (Kimi Linear, arXiv:2510.26692).

    Args:
        g: Logarithm of the decay of every key feature, at most 0: `[B, T, H, K]`.

    Example:
        >>> q, k, v = torch.randn(3, 2, 10, 4, 8).unbind()
        >>> g, beta = -torch.rand(2, 10, 4, 8), torch.rand(2, 10, 4)
        >>> o, state = kimi_delta_attention(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)
        >>> o.shape
        torch.Size([2, 10, 4, 8])
    """
    options = _Options(scale, initial_state, output_final_state, reset, cu_seqlens, state_out)
    return _run("kda", (q, k, v, g, beta), options, use_qk_l2norm_in_kernel)


@shares(SHARED)
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
) -> OutputAndState:
    """Gated linear attention (GLA), with one decay per key feature.

        W <- W diag(exp(g)) + v k^T
        o = scale W q

    With k = 1 - exp(g) it is HGRN2.

    Source: Yang et al. 2024 (Gated Linear Attention Transformers, arXiv:2312.06635); Qin et al. 2024 (HGRN2,
    arXiv:2404.07904).

    Args:
        g: Logarithm of the decay of every key feature, at most 0: `[B, T, H, K]`.

    Example:
        >>> q, k, v = torch.randn(3, 2, 10, 4, 8).unbind()
        >>> o, state = gated_linear_attention(q, k, v, g=-torch.rand(2, 10, 4, 8))
        >>> o.shape
        torch.Size([2, 10, 4, 8])
    """
    options = _Options(scale, initial_state, output_final_state, reset, cu_seqlens, state_out)
    return _run("gla", (q, k, v, g), options)


@shares(SHARED)
def simple_gla(
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
) -> OutputAndState:
    """Simple gated linear attention: the sum rule with one decay per head.

        W <- exp(g) W + v k^T
        o = scale W q

    With a fixed g per head it is the memory of RetNet and of lightning attention.

    Source: Sun et al. 2023 (RetNet, arXiv:2307.08621); Dao and Gu 2024 (Mamba-2, arXiv:2405.21060).

    Example:
        >>> q, k, v = torch.randn(3, 2, 10, 4, 8).unbind()
        >>> o, state = simple_gla(q, k, v, g=-torch.rand(2, 10, 4))
        >>> o.shape
        torch.Size([2, 10, 4, 8])
    """
    options = _Options(scale, initial_state, output_final_state, reset, cu_seqlens, state_out)
    return _run(f"{__name__}:_gated_sum", (q, k, v, g), options)


class _GatedInputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: Value
    decay: Decay


def _gated_sum(state: MemoryState, x: _GatedInputs) -> tuple[MemoryState, Value]:
    """The step of the rule `hebbian` with eta = 1."""
    W = x.decay * state.W + torch.outer(x.v, x.k)
    return MemoryState(W), W @ x.q


@shares(SHARED)
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
) -> OutputAndState:
    """RWKV-7: a decay per key feature, and a separate key for removal.

        W <- W diag(exp(w)) + (W a) b^T + v k^T
        o = scale W r

    The value to remove, W a, is read before W decays. RWKV-7 has a = -u and b = rate * u for a vector u of length 1.

    Source: Peng et al. 2025 (RWKV-7, arXiv:2503.14456).

    Args:
        r: Queries `[B, T, H, K]`.
        w: Logarithm of the decay of every key feature, at most 0: `[B, T, H, K]`.
        a: Keys of the values to remove, `[B, T, H, K]`.
        b: Keys under which they are removed, `[B, T, H, K]`.

    Example:
        >>> r, k, v, u = torch.randn(4, 2, 10, 4, 8).unbind()
        >>> u = torch.nn.functional.normalize(u, dim=-1)
        >>> o, state = rwkv7(r, -torch.rand(2, 10, 4, 8), k, v, a=-u, b=0.5 * u)
        >>> o.shape
        torch.Size([2, 10, 4, 8])
    """
    options = _Options(scale, initial_state, output_final_state, reset, cu_seqlens, state_out)
    return _run(f"{__name__}:_removing", (r, k, v, a, b, w), options)


class _Removal(NamedTuple):
    r: RawKey
    k: RawKey
    v: Value
    a: RawKey
    b: RawKey
    w: KeyDecay


def _removing(state: MemoryState, x: _Removal) -> tuple[MemoryState, Value]:
    """The step of the cell `rwkv7` with independent a and b."""
    W = state.W * x.w + torch.outer(state.W @ x.a, x.b) + torch.outer(x.v, x.k)
    return MemoryState(W), W @ x.r


class _State(NamedTuple):
    S: Annotated[Tensor, TensorSpec("K V", "memory")]


class _Options(NamedTuple):
    """The arguments that all functions share."""

    scale: float | Tensor | None
    initial_state: Tensor | None
    output_final_state: bool
    reset: Tensor | None
    cu_seqlens: Tensor | None
    state_out: Tensor | None


def _run(name: str, inputs: tuple[Tensor, ...], options: _Options, unit: bool = False) -> OutputAndState:
    """Runs the memory of a cell. With `unit`, queries and keys are normalised to length 1."""
    _require_flag("output_final_state", options.output_final_state)
    _require_flag("use_qk_l2norm_in_kernel", unit)
    cell = _cell(name, unit, options.scale is not None)
    returns_state = options.output_final_state or options.state_out is not None
    if options.cu_seqlens is not None:
        check_packed(options.cu_seqlens, inputs[0])
        if options.reset is not None:
            raise invalid("reset", "None with cu_seqlens", "both", "Both mark the starts of sequences; use one.")
        if options.initial_state is not None or returns_state:
            o, last = _scan_packed(cell, inputs, options, options.cu_seqlens)
            return o, last if returns_state else None
        options = options._replace(reset=starts(options.cu_seqlens, inputs[0].shape[1]))
    o, last = _scan(cell, inputs, options)
    return o, last if returns_state else None


def _scan_packed(
    cell: Cell, inputs: tuple[Tensor, ...], options: _Options, cu_seqlens: Tensor
) -> tuple[Tensor, Tensor]:
    """Scans packed sequences with one state each, as members of a batch."""
    sequences = torch.arange(len(cu_seqlens) - 1, device=cu_seqlens.device)
    # A given `state_out` is written in one scan of all sequences.
    chosen = group_by_length(cu_seqlens) if options.state_out is None else [sequences]
    groups = [SequenceGroup.of(cu_seqlens, members) for members in chosen]
    if len(groups) == 1:
        (group,) = groups
        o, last = _scan(cell, tuple(map(group.unpack, inputs)), options, group.lengths)
        return pack(groups, [o]), last
    state = options.initial_state
    _require_state("initial_state", state, inputs, len(sequences))
    results = []
    for group in groups:
        start = None if state is None else state[group.chosen]
        own = options._replace(initial_state=start)
        results.append(_scan(cell, tuple(map(group.unpack, inputs)), own, group.lengths))
    outputs, states = zip(*results, strict=True)
    return pack(groups, outputs), in_order(groups, states)


def _scan(
    cell: Cell, inputs: tuple[Tensor, ...], options: _Options, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    q, (scale, initial_state, _, reset, _, state_out) = inputs[0], options
    Inputs: Callable[..., Any] = cell.Inputs
    _require_axes(cell, inputs)
    if scale is not None:
        inputs = (*inputs, _factor(scale, q))
    _require_state("initial_state", initial_state, inputs, len(q))
    if state_out is not initial_state:
        _require_state("state_out", state_out, inputs, len(q))
    state = None if initial_state is None else _State(initial_state)
    out = None if state_out is None else state if state_out is initial_state else _State(state_out)
    o, last = scan(cell, Inputs(*inputs), state, reset=reset, lengths=lengths, state_out=out)
    return o if o.dtype == q.dtype else o.to(q.dtype), last.S


def _require_flag(name: str, value: bool) -> None:
    if value is not True and value is not False:
        convert_argument(name, value, bool)


def _require_axes(cell: Cell, inputs: tuple[Tensor, ...]) -> None:
    """`InputError` unless queries, keys and values have the axes that the code in front of `scan` reads."""
    names = cell.Inputs._fields  # type: ignore[attr-defined]
    for name, x in zip(names, inputs, strict=False):
        if not isinstance(x, Tensor):
            raise invalid(name, "a tensor", type(x).__name__, remedy_for(x, name))
    for name, x in zip(names, inputs[:3], strict=False):
        if x.ndim != 4:
            raise invalid(name, "[B, T, H, .]", list(x.shape), "Give batch, time and heads an axis each.")


def _factor(scale: float | Tensor, q: Tensor) -> Tensor:
    """The factor on all queries, `[B, T, H]`, in float32 at least."""
    dtype, H = torch.promote_types(q.dtype, torch.float32), q.shape[2]
    if not isinstance(scale, Tensor):
        number = scale if type(scale) is float else convert_argument("scale", scale, float)
        scale = torch.full((), number, dtype=dtype, device=q.device)
    fits = scale.dtype in PRECISIONS and (scale.ndim == 0 or tuple(scale.shape) == (H,))
    if not fits or scale.device != q.device:
        requirement = f"a number, or a floating tensor [] or [H] with H={H} on {q.device}"
        raise invalid("scale", requirement, f"{scale.dtype} {list(scale.shape)} on {scale.device}")
    return scale.to(dtype).expand(q.shape[:3])


def _require_state(name: str, state: Tensor | None, inputs: tuple[Tensor, ...], sequences: int) -> None:
    """Raises `InputError` with the name of the argument; `scan` would name the field S."""
    if state is None:
        return
    q, _, v = inputs[:3]
    if not isinstance(state, Tensor):
        raise invalid(name, "a tensor", type(state).__name__)
    shape = (sequences, q.shape[2], q.shape[3], v.shape[3])
    if state.shape != shape:
        raise invalid(name, f"[N, H, K, V] = {list(shape)}", list(state.shape))


@traced_constant
@cache
def _cell(name: str, unit: bool, scaled: bool) -> Cell:
    return Cell.from_function(_laid_out(name, unit, scaled))


NAMES = {"decay": "g"}
"""Names of cell inputs, with the names in these functions and their error messages."""


@family
def _laid_out(name: str, unit: bool, scaled: bool) -> Callable[..., Any]:
    """The step of a memory in the layout of flash-linear-attention: states have keys before values.

    The step maps its inputs itself, so that a kernel reads and writes tensors in the layout of the caller. Transposing
    the state would take longer than one step. With `unit`, keys and queries are normalised to length 1. Decays are
    logarithms. The factor on the queries is an input if `scaled`, else K^-0.5.
    """
    inner = Cell.from_function(name)
    maps: dict[str, Callable[[Tensor], Tensor]] = {"key": l2 if unit else _identity, "decay": torch.exp}
    input_maps = tuple(maps.get(slot.kind, _identity) for slot in inner.slots["Inputs"].values())
    # Plain functions and tuples can be guarded: a call need not inspect the step again.
    run, InnerInputs = inner.step, inner.Inputs
    fields = [(NAMES.get(field, field), Annotated[Tensor, slot]) for field, slot in inner.slots["Inputs"].items()]
    factor = [("scale", Annotated[Tensor, TensorSpec("", "value")])] if scaled else []
    Inputs = NamedTuple("Inputs", [*fields, *factor])  # type: ignore[misc]

    def map_inputs(x: Any) -> Any:
        q, *rest = [function(value) for function, value in zip(input_maps, x, strict=False)]
        return InnerInputs(q * (x.scale[..., None] if scaled else q.shape[-1] ** -0.5), *rest)

    def step(state: _State, x: Any) -> tuple[_State, Tensor]:
        after, y = run(MemoryState(state.S.mT), map_inputs(x))
        return _State(after.W.mT), y

    step.__annotations__ |= {
        "x": Inputs,
        "return": types.GenericAlias(tuple, (_State, Annotated[Tensor, inner.output])),
    }
    step.__name__, step.__doc__ = inner.name.replace("-", "_"), inner.summary
    return step


def _identity(x: Tensor) -> Tensor:
    return x
