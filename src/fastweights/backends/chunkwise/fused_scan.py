"""Fused scans: all of a stage of chunks in a few kernels, from the coefficients of all steps.

    u[t] = v[t] - S[t-1] e[t],     S[t] = S[t-1] diag(a[t]) + u[t] k[t]^T,     y[t] = S[t] q[t]  or  S[t-1] q[t]

A number of consecutive steps may be a group, in which S[t-1] e[t] and S[t-1] q[t] read the S before the first of them.
Only this one decays. The writes of one step of a cell that erases several times are such a group.

`torch.ops.fastweights.chunk_scan` is one operation, which PyTorch can trace and differentiate once.
"""

from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fastweights.compiler.op import LIBRARY, refuse_second_derivative
from fastweights.compiler.targets.target import TARGETS, target_of
from fastweights.core.traced_constant import traced_constant

IMPLEMENTATIONS = {"triton": "triton.fused_scan"}
"""The modules of this package with kernels for a target."""
STEPS = 16
"""Steps of a chunk. Chunks of 32 steps spill registers from K = 64 on."""
BLOCK = 16
"""Columns of a block of S. Wider blocks spill more registers."""
LARGEST = 256
"""The largest number of columns of S: a program holds 16 rows in registers."""
OPERANDS = "Tensor q, Tensor k, Tensor? e, Tensor v, Tensor? a"
FORM = "int states, int group, bool reads_after, bool is_half"
LIBRARY.define(f"chunk_scan({OPERANDS}, Tensor S, {FORM}, bool keep) -> (Tensor, Tensor, Tensor)")
LIBRARY.define(
    f"chunk_scan_backward({OPERANDS}, {FORM}, Tensor starts, Tensor d_y, Tensor d_last)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


class ScanOperands(NamedTuple):
    """The coefficients of all steps, and the first S.

    q, k and e are `[B, T, H, K]`, v is `[B, T, H, V]`, a is `[B, T, H, 1]` or `[B, T, H, K]`, and S is `[B, H, V, K]`.
    Two states that mix are side by side in S. Their a is a matrix, `[B, T, H, 4]`, or one per column, `[B, T, H, 2 K]`.
    Nothing is erased without e, and nothing decays without a. q, k, e, v and a may have half precision, and so do their
    gradients then. S and all results have the dtype of the computation.
    """

    q: Tensor
    k: Tensor
    e: Tensor | None
    v: Tensor
    a: Tensor | None
    S: Tensor


class TileSizes(NamedTuple):
    """Steps per chunk, columns per block, number of blocks, and rows per program of the walks."""

    C: int
    BK: int
    BLOCKS: int
    ROWS: int


class FusedForm(NamedTuple):
    """The properties that a compiled kernel depends on."""

    K: int
    V: int
    factors: int
    """Numbers of the decay of a step: 0, 1 or K; 4 or 2 K for two states."""
    states: int
    """States that are side by side: 1 or 2."""
    erases: int
    """Steps of a group that reads the same S; 0 if nothing is erased. It divides the steps of a chunk."""
    reads_after: bool
    is_half: bool
    """Whether the inputs of the cell have half precision, so that products may be less exact."""

    @property
    def decay_kind(self) -> int:
        """0 without a decay, 1 for one number per step, 2 for one number per step and column, 3 for a matrix that mixes
        two states, 4 for one per column."""
        if self.factors and self.states == 2:
            return 3 if self.factors == 4 else 4
        return min(self.factors, 2)

    @property
    def sizes(self) -> TileSizes:
        """The sizes of the tiles. They depend on no batch and no length, and so do the results."""
        rows = 16 if self.V <= 16 or self.K > 128 else 32
        states = 2 if self.decay_kind > 2 else 1
        return TileSizes(STEPS, BLOCK, states * -(-self.K // states // BLOCK), rows)

    @property
    def is_one_program(self) -> bool:
        """Whether a program can run the backward pass of a head: it has all rows of S, and spills few registers."""
        return self.V <= self.sizes.ROWS and self.states == 1

    def warps(self, kernel: str) -> int:
        """Warps of a program of a kernel. Triton gives a chained product one warp per 16 rows.

        Wide states, and the gradients of two states, spill less with 2 warps. There are at most 2: for more, Triton
        chooses products of four warps, which several of its versions compile wrongly.
        """
        if kernel in ("walk", "walk back", "join", "back"):
            return 2 if self.V > 16 or self.K > 128 else 1
        return 2 if kernel == "gradients" and self.decay_kind > 2 else self.sizes.C // 16


def form_of(operands: ScanOperands, states: int, group: int, reads_after: bool, is_half: bool) -> FusedForm:
    """The form of a scan."""
    K, V, a = operands.q.shape[-1], operands.v.shape[-1], operands.a
    erases = 0 if operands.e is None else group
    return FusedForm(K, V, 0 if a is None else a.shape[-1], states, erases, reads_after, is_half)


class FusedScan(Protocol):
    """Runs a scan in fused kernels."""

    def forward(self, operands: ScanOperands, form: FusedForm, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
        """y, the last S, and the S before every chunk `[B H, N, V, K]`: an empty tensor unless `keep`."""

    def backward(
        self, operands: ScanOperands, form: FusedForm, starts: Tensor, d_y: Tensor, d_last: Tensor
    ) -> list[Tensor]:
        """The gradients of all operands; an empty tensor in place of an operand that is None."""


def missing_kernels(device: str) -> str:
    """The reason why a type of device has no fused kernels, with a remedy where there is one; empty if it has them."""
    target = TARGETS.get(device, "")
    if target not in IMPLEMENTATIONS:
        return f"there are none for {device}"
    return target_of(device).missing_requirement()


_traced_reason = traced_constant(missing_kernels)


def missing_here(device: str) -> str:
    """`missing_kernels` for calls that PyTorch may trace."""
    return _traced_reason(device) if torch.compiler.is_compiling() else missing_kernels(device)


@cache
def _implementation(target: str) -> FusedScan:
    module: Any = import_module(f"{__package__}.{IMPLEMENTATIONS[target]}")
    return module


def fused_scan(
    operands: ScanOperands, states: int, group: int, reads_after: bool, is_half: bool
) -> tuple[Tensor, Tensor]:
    """y `[B, T, H, V]` and the last S, differentiable once.

    A number of `states` is side by side in S. A `group` of steps reads the same S, and divides T.
    """
    keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands)
    tensors = (None if x is None else x.contiguous() for x in operands)
    y, last, _ = torch.ops.fastweights.chunk_scan(*tensors, states, group, reads_after, is_half, keep)
    return y, last


def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The operation `chunk_scan` on a device with kernels."""
    *tensors, states, group, reads_after, is_half, keep = arguments
    operands = ScanOperands(*tensors)
    kernels = _implementation(TARGETS[operands.q.device.type])
    return kernels.forward(operands, form_of(operands, states, group, reads_after, is_half), keep)


def _backward(*arguments: Any) -> tuple[Tensor, ...]:
    """The operation `chunk_scan_backward` on a device with kernels. d_last stands for S, whose shape it has."""
    *tensors, states, group, reads_after, is_half, starts, d_y, d_last = arguments
    operands = ScanOperands._make([*tensors, d_last])
    kernels = _implementation(TARGETS[d_last.device.type])
    form = form_of(operands, states, group, reads_after, is_half)
    return tuple(kernels.backward(operands, form, starts, d_y.contiguous(), d_last.contiguous()))


for device in TARGETS:
    LIBRARY.impl("chunk_scan", _forward, device.upper())
    LIBRARY.impl("chunk_scan_backward", _backward, device.upper())


@torch.library.register_fake("fastweights::chunk_scan", lib=LIBRARY)
def _forward_shapes(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *tensors, states, group, reads_after, is_half, keep = arguments
    operands = ScanOperands(*tensors)
    (B, T, H), S = operands.q.shape[:3], operands.S
    C = form_of(operands, states, group, reads_after, is_half).sizes.C
    starts = S.new_empty((B * H, -(-T // C), *S.shape[2:]) if keep else (0,))
    return torch.empty_like(operands.v, dtype=S.dtype), torch.empty_like(S), starts


@torch.library.register_fake("fastweights::chunk_scan_backward", lib=LIBRARY)
def _backward_shapes(*arguments: Any) -> tuple[Tensor, ...]:
    *operands, _, _, _, _, _, _, d_last = arguments
    return tuple(d_last.new_empty(0) if x is None else torch.empty_like(x) for x in (*operands, d_last))


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *operands, S, states, group, reads_after, is_half, _ = inputs
    ctx.save_for_backward(*operands, output[-1])
    ctx.form, ctx.shape = (states, group, reads_after, is_half), S.shape
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, d_y: Tensor | None, d_last: Tensor | None, _: Tensor | None) -> tuple[Any, ...]:
    *operands, starts = ctx.saved_tensors
    v = operands[3]
    d_y = torch.zeros_like(v, dtype=starts.dtype) if d_y is None else d_y
    d_last = starts.new_zeros(ctx.shape) if d_last is None else d_last
    gradients = torch.ops.fastweights.chunk_scan_backward(*operands, *ctx.form, starts, d_y, d_last)
    absent = [x is None for x in operands]
    return *(None if gone else d for d, gone in zip(gradients, [*absent, False], strict=True)), *[None] * 5


NO_SECOND_DERIVATIVE = partial(refuse_second_derivative, "chunkwise")
torch.library.register_autograd("fastweights::chunk_scan_backward", NO_SECOND_DERIVATIVE, lib=LIBRARY)
torch.library.register_autograd("fastweights::chunk_scan", _gradients, setup_context=_keep_for_backward, lib=LIBRARY)
