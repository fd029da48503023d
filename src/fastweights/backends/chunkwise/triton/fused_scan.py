"""Launches of the chunk kernels: two in the forward pass, and three in the backward pass."""

# mypy: allow-untyped-defs, allow-incomplete-defs
from contextlib import nullcontext
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from fastweights.backends.chunkwise.fused_scan import FusedForm, ScanOperands
from fastweights.backends.chunkwise.triton.chunk_kernels import gradients, prepare, walk, walk_back
from fastweights.compiler.targets.triton.occupancy import OPTIONS, POINTERS, Assembled, assemble_function, target_of

KERNELS = {"prepare": prepare, "walk": walk, "walk back": walk_back, "gradients": gradients}
"""The kernels by name. `prepare` runs in both passes."""
HALF = ("q", "k", "v", "d_q", "d_k")
"""The pointers to inputs that may have half precision, and to their gradients."""
COUNTS = ("T", "H", "N")
"""The integer arguments, which no kernel is compiled for."""


def forward(operands: ScanOperands, form: FusedForm, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y, the last S, and the S before every chunk `[B H, N, V, K]`: an empty tensor unless `keep`."""
    launch, S = Launch(operands, form), operands.S
    y, last = torch.empty_like(operands.v, dtype=S.dtype), torch.empty_like(S)
    starts = S.new_empty(launch.M, launch.N, *S.shape[2:]) if keep else S.new_empty(0)
    scores = launch.scores(S)
    launch("prepare", launch.chunks, scores | {"WRITES": False})
    launch("walk", launch.rows, scores | {"S_first": S, "y": y, "S_last": last, "starts": starts, "KEEP": keep})
    return y, last, starts


def backward(operands: ScanOperands, form: FusedForm, starts: Tensor, d_y: Tensor, d_last: Tensor) -> list[Tensor]:
    """The gradients of all operands; an empty tensor in place of an operand that is None."""
    launch, S = Launch(operands, form), d_last
    scores, u = launch.scores(S), torch.empty_like(operands.v, dtype=S.dtype)
    d = {f"d_{name}": S.new_empty(0) if x is None else torch.empty_like(x) for name, x in launch.inputs.items()}
    d["d_v"] = torch.empty_like(u)  # which other gradients depend on
    between = {"starts": starts, "u": u, "d_y": d_y, "d_ends": torch.empty_like(starts)}
    d_first = torch.empty_like(S)
    launch("prepare", launch.chunks, scores | between | {"WRITES": True})
    launch("walk back", launch.rows, scores | between | d | {"d_last": d_last, "d_first": d_first})
    launch("gradients", launch.chunks, between | d)
    return [*(d | {"d_v": d["d_v"].to(operands.v.dtype)}).values(), d_first]


class Launch:
    """The launches of one pass."""

    def __init__(self, operands: ScanOperands, form: FusedForm) -> None:
        (B, self.T, self.H, _), self.form, self.sizes = operands.q.shape, form, form.sizes
        self.M, self.N = B * self.H, -(-self.T // self.sizes.C)
        self.chunks, self.rows = (self.M * self.N,), (self.M, -(-form.V // self.sizes.ROWS))
        self.inputs = operands._asdict()
        self.like = self.inputs.pop("S")
        self.constants = constants(form, self.like.dtype, precision_here(form, self.like))

    def scores(self, like: Tensor) -> dict[str, Any]:
        """Memory for the inverses and the scores of all chunks."""
        C = self.sizes.C
        return {name: like.new_empty(self.M * self.N, C, C) for name in ("inverses", "scores")}

    def __call__(self, name: str, grid: tuple[int, ...], arguments: dict[str, Any]) -> None:
        """Launches a kernel with the arguments that it has."""
        kernel = KERNELS[name]
        counts = {"T": self.T, "H": self.H, "N": self.N}
        values = {name: x for name, x in (self.inputs | self.constants | counts | arguments).items() if x is not None}
        # A pointer that the kernel does not read may be any.
        named = {x: values.get(x, self.like) for x in kernel.arg_names}
        with torch.cuda.device(self.like.device) if self.like.is_cuda else nullcontext():
            kernel[grid](**named, num_warps=self.form.warps(name), **OPTIONS)


def constants(form: FusedForm, dtype: torch.dtype, precision: str) -> dict[str, Any]:
    """The arguments that kernels are compiled for."""
    sizes = form.sizes
    return {
        "K": form.K,
        "V": form.V,
        "F": form.factors,
        "ERASES": form.erases,
        "FADES": form.fades,
        "READS": 0 if form.reads_after else -max(1, form.erases),
        "C": sizes.C,
        "LEVELS": sizes.C.bit_length() - 1,
        "BLOCKS": sizes.BLOCKS,
        "BK": sizes.BK,
        "ROWS": sizes.ROWS,
        "PRECISION": precision,
        "real": tl.float64 if dtype == torch.float64 else tl.float32,
    }


def precision_here(form: FusedForm, like: Tensor) -> str:
    """The precision of products on the device of a tensor."""
    return "ieee" if torch.version.hip or like.dtype == torch.float64 or not like.is_cuda else precision(form)


def precision(form: FusedForm) -> str:
    """The precision of products on chips of NVIDIA: that of float32 by three products, or less for half inputs."""
    return "tf32" if form.is_half else "tf32x3"


def assembled(name: str, form: FusedForm, dtype: torch.dtype, chip: str) -> Assembled:
    """A kernel compiled for a chip that need not be present, and the registers that it takes."""
    function, target = KERNELS[name], target_of(chip)
    exact = dtype == torch.float64 or target.backend == "hip"
    fixed = constants(form, dtype, "ieee" if exact else precision(form)) | {"KEEP": True, "WRITES": True}
    fixed = {name: x for name, x in fixed.items() if name in function.arg_names}
    types = {name: "i32" if name in COUNTS else POINTERS[dtype] for name in function.arg_names if name not in fixed}
    types |= {name: "*bf16" for name in HALF if form.is_half and name in types}
    warps = form.warps(name)
    return assemble_function(function, types, fixed, target, warps, f"chunk kernel {name!r} with K={form.K}")
