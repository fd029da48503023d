"""Kernels of a softmax whose logits are not kept.

They read the logits twice in the forward pass and once in the backward pass. The operations of PyTorch read or write
all logits five times in each.
"""

from collections.abc import Callable, Sequence
from ctypes import CDLL, c_int64, c_void_p
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.targets.cpp import build
from fastweights.compiler.targets.cpp.cpu import lanes
from fastweights.compiler.targets.cpp.prologue import RUNTIME
from fastweights.compiler.targets.cpp.threads import share
from fastweights.compiler.targets.cpp.toolchain import missing_requirement

CODE = Path(__file__).with_name("softmax.h")
NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
TASK = 1 << 14
"""Minimum number of logits per thread."""


class CppSoftmax:
    """The functions of the library for one dtype of the logits."""

    def __init__(self, library: CDLL, dtype: torch.dtype) -> None:
        self._forward = _typed(library[f"log_sum_exp_{NAMES[dtype]}"], 2, 3)
        self._backward = _typed(library[f"gradient_{NAMES[dtype]}"], 6, 4)

    def log_sum_exp(self, logits: Tensor) -> Tensor:
        """The log-sum-exp of every row, see `SoftmaxKernel`."""
        rows, columns = logits.shape
        totals = logits.new_empty(rows, dtype=torch.float32)
        share(partial(_call, self._forward, (logits, totals), (columns,)), rows, _threads(logits, rows))
        return totals

    def gradient_(
        self, logits: Tensor, totals: Tensor, d_totals: Tensor, d_chosen: Tensor, chosen: Tensor, d_bias: Tensor
    ) -> Tensor:
        """Replaces logits by their gradient, see `SoftmaxKernel`."""
        rows, columns = logits.shape
        tensors = (logits, *(x.contiguous() for x in (totals, d_totals, d_chosen, chosen)), d_bias)
        call = partial(_call, self._backward, tensors, (rows, columns))
        share(call, columns, _threads(logits, columns))
        return logits


def softmax(dtype: torch.dtype) -> CppSoftmax | None:
    """The built kernel for logits of a dtype; None for other dtypes than float32 and bfloat16.

    Raises:
        Unbuilt: There is no C++ compiler, or it fails.
    """
    return CppSoftmax(_library(), dtype) if dtype in NAMES else None


@cache
def _library() -> CDLL:
    width = f"#define LANES {lanes(torch.float32)}\n"
    source = "\n".join([RUNTIME.read_text(encoding="utf-8"), width, CODE.read_text(encoding="utf-8")])
    stem = build.stem("softmax", build.source_digest(source))
    library = build.load(stem)
    if library is None and (why := missing_requirement()):
        raise Unbuilt(why)
    return library or build.build(source, stem)


def _call(
    function: Callable[..., None], tensors: Sequence[Tensor], sizes: tuple[int, ...], first: int, end: int
) -> None:
    """Calls a function for a range. It holds the tensors until it returns."""
    function(*(x.data_ptr() for x in tensors), *sizes, first, end)


def _typed(function: Callable[..., None], pointers: int, numbers: int) -> Callable[..., None]:
    function.restype, function.argtypes = None, [c_void_p] * pointers + [c_int64] * numbers  # type: ignore[attr-defined]
    return function


def _threads(logits: Tensor, parts: int) -> int:
    return max(1, min(torch.get_num_threads(), logits.numel() // TASK, parts))
