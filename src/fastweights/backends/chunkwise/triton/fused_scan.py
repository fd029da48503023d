"""Launches of the chunk kernels: two in the forward pass, and three in the backward pass.

A short sequence takes one in the forward pass and, if S has few rows, one in the backward pass. A long sequence that
does not fill a GPU takes three more in the forward pass, and three more in the backward pass.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from contextlib import nullcontext
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from fastweights.backends.chunkwise.fused_scan import FusedForm, ScanOperands
from fastweights.backends.chunkwise.triton import chunk_kernels
from fastweights.backends.chunkwise.triton.chunk_kernels import back, gradients, join, prepare, walk, walk_back
from fastweights.compiler.targets.triton.occupancy import OPTIONS, POINTERS, Assembled, assemble_function, target_of

KERNELS = {"prepare": prepare, "walk": walk, "walk back": walk_back, "gradients": gradients}
"""The kernels by name. `prepare` runs in both passes."""
LAUNCHED = KERNELS | {"join": join, "back": back}
LONG = 256
"""The number of chunks from which a sequence may be cut into segments."""
SEGMENT = 32
"""The chunks of a segment."""
FULL = 4
"""Programs per multiprocessor from which a GPU is full: one of two warps for each of its four schedulers."""
JOINED = 128
"""The largest number of columns of a sequence that is cut: `join` has a product for every pair of blocks."""
SHORT = 4
"""The largest number of chunks of a short sequence, for which a launch takes longer than work that is done twice."""
MERGED = 128
"""The largest number of columns of such a sequence. With more, a kernel that does all the work spills registers."""
WHOLE, WRITTEN, MAP = (part.value for part in (chunk_kernels.WHOLE, chunk_kernels.WRITTEN, chunk_kernels.MAP))
"""The results that `walk` computes for a segment: see `chunk_kernels.py`."""
HALF = ("q", "k", "v", "d_q", "d_k")
"""The pointers to inputs that may have half precision, and to their gradients."""
COUNTS = ("T", "H", "N", "CUT", "SEGMENTS")
"""The integer arguments, which no kernel is compiled for."""


def forward(operands: ScanOperands, form: FusedForm, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y, the last S, and the S before every chunk `[B H, N, V, K]`: an empty tensor unless `keep`."""
    launch, S = Launch(operands, form), operands.S
    y = torch.empty_like(operands.v, dtype=S.dtype)
    starts = S.new_empty(launch.M, launch.N, *S.shape[2:]) if keep else S.new_empty(0)
    firsts, last = S, launch.per_segment(S)
    scores = {"ALONE": launch.is_short} | ({} if launch.is_short else launch.scores(S))
    if not launch.is_short:
        launch("prepare", launch.chunks, scores | {"WRITES": False})
    if launch.segments > 1:
        launch("walk", launch.rows, scores | {"S_last": last, "KEEP": False, "PART": WRITTEN})
        firsts = launch.joined(S, last, launch.maps(scores), back=False)
    results = {"S_first": firsts, "y": y, "S_last": last, "starts": starts, "KEEP": keep, "PART": WHOLE}
    launch("walk", launch.rows, scores | results)
    return y, last[:, -1].reshape(S.shape).contiguous(), starts


def backward(operands: ScanOperands, form: FusedForm, starts: Tensor, d_y: Tensor, d_last: Tensor) -> list[Tensor]:
    """The gradients of all operands; an empty tensor in place of an operand that is None."""
    launch, S = Launch(operands, form), d_last
    u = torch.empty_like(operands.v, dtype=S.dtype)
    d = {f"d_{name}": S.new_empty(0) if x is None else torch.empty_like(x) for name, x in launch.inputs.items()}
    d["d_v"] = torch.empty_like(u)  # which other gradients depend on
    between = {"starts": starts, "u": u, "d_y": d_y, "d_ends": torch.empty_like(starts)} | d
    d_first = launch.per_segment(S)
    if launch.is_short and form.is_one_program:
        launch("back", (launch.M,), between | {"d_last": d_last, "d_first": d_first})
    else:
        launch.back(between, d_last, d_first)
    return [*(d | {"d_v": d["d_v"].to(operands.v.dtype)}).values(), d_first[:, 0].reshape(S.shape).contiguous()]


def segment_chunks(form: FusedForm, H: int, N: int, processors: int) -> int:
    """The chunks of a segment: all N unless a sequence is long and does not fill a GPU.

    It does not depend on the size of the batch, so that a sequence has the same bits alone and in a batch.
    """
    programs = H * -(-form.V // form.sizes.ROWS)
    is_cut = N >= LONG and programs < FULL * processors and form.K <= JOINED
    return SEGMENT if is_cut else max(1, N)


def is_short(form: FusedForm, N: int) -> bool:
    """Whether N chunks are so few that the forward pass is one launch, and the backward pass if it can be."""
    return N <= SHORT and form.K <= MERGED


def processors_of(device: torch.device) -> int:
    """The multiprocessors of a GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 0


class Launch:
    """The launches of one pass."""

    def __init__(self, operands: ScanOperands, form: FusedForm) -> None:
        (B, self.T, self.H, _), self.form, self.sizes = operands.q.shape, form, form.sizes
        self.M, self.N = B * self.H, -(-self.T // self.sizes.C)
        self.inputs = operands._asdict()
        self.like = self.inputs.pop("S")
        self.cut = segment_chunks(form, self.H, self.N, processors_of(self.like.device))
        self.segments = max(1, -(-self.N // self.cut))
        self.is_short = self.segments == 1 and is_short(form, self.N)
        self.chunks, self.rows = (self.M * self.N,), self.programs(self.segments, form.V)
        self.constants = constants(form, self.like.dtype, precision_here(form, self.like))

    def scores(self, like: Tensor) -> dict[str, Any]:
        """Memory for the inverses and the scores of all chunks."""
        C = self.sizes.C
        return {name: like.new_empty(self.M * self.N, C, C) for name in ("inverses", "scores")}

    def back(self, between: dict[str, Any], d_last: Tensor, d_first: Tensor) -> None:
        """The launches of the backward pass of a sequence that is not short."""
        scores = self.scores(self.like)
        self("prepare", self.chunks, scores | between | {"WRITES": True})
        lasts = d_last
        if self.segments > 1:
            self("walk back", self.rows, scores | between | {"d_first": d_first, "PART": WRITTEN})
            lasts = self.joined(d_last, d_first, self.maps(scores | {"ALONE": False}), back=True)
        results = {"d_last": lasts, "d_first": d_first, "PART": WHOLE}
        self("walk back", self.rows, scores | between | results)
        self("gradients", self.chunks, between)

    def programs(self, segments: int, rows: int) -> tuple[int, int]:
        """The grid of a kernel that takes some rows of every segment through its chunks."""
        return self.M * segments, -(-rows // self.sizes.ROWS)

    def per_segment(self, like: Tensor) -> Tensor:
        """Memory for a state of every segment, `[B H, segments, V, K]`."""
        return like.new_empty(self.M, self.segments, *like.shape[2:])

    def maps(self, scores: dict[str, Any]) -> Tensor:
        """The matrix of every segment that multiplies S, `[B H, segments, K, K]`."""
        K = self.form.K
        maps = self.like.new_empty(self.M, self.segments, K, K)
        result = {"S_last": maps, "KEEP": False, "PART": MAP, "V": K}
        self("walk", self.programs(self.segments, K), scores | result)
        return maps

    def joined(self, S: Tensor, written: Tensor, maps: Tensor, back: bool) -> Tensor:
        """The S before every segment, or with `back` its gradient after every segment."""
        result = torch.empty_like(written)
        states = {"S": S, "written_S": written, "maps": maps, "firsts": result, "BACK": back}
        self("join", self.programs(1, self.form.V), states)
        return result

    def __call__(self, name: str, grid: tuple[int, ...], arguments: dict[str, Any]) -> None:
        """Launches a kernel with the arguments that it has."""
        kernel = LAUNCHED[name]
        counts = {"T": self.T, "H": self.H, "N": self.N, "CUT": self.cut, "SEGMENTS": self.segments}
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
        "DECAY": form.decay_kind,
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


def assembled(
    name: str, form: FusedForm, dtype: torch.dtype, chip: str, part: int = WHOLE, alone: bool = False
) -> Assembled:
    """A kernel compiled for a chip that need not be present, and the registers that it takes.

    `alone` is for the `walk` of a short sequence.
    """
    function, target = LAUNCHED[name], target_of(chip)
    exact = dtype == torch.float64 or target.backend == "hip"
    fixed = constants(form, dtype, "ieee" if exact else precision(form)) | {
        "KEEP": True,
        "WRITES": True,
        "PART": part,
        "ALONE": alone,
        "BACK": True,
    }
    fixed = {name: x for name, x in fixed.items() if name in function.arg_names}
    types = {name: "i32" if name in COUNTS else POINTERS[dtype] for name in function.arg_names if name not in fixed}
    types |= {name: "*bf16" for name in HALF if form.is_half and name in types}
    warps = form.warps(name)
    return assemble_function(function, types, fixed, target, warps, f"chunk kernel {name!r} with K={form.K}")
