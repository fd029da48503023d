"""Triton kernels of flash-linear-attention on a CPU, under Triton's interpreter: an oracle in float64.

Call `interpret()` before flash-linear-attention is imported. Run Python with -O, since two functions assert a GPU, and
with TORCHDYNAMO_DISABLE=1.
"""

import builtins
import os
import sys
from collections.abc import Iterator
from functools import partialmethod
from typing import Any

import torch


def interpret() -> None:
    """Makes Triton interpret, in float64, the kernels that are imported after this call."""
    assert "triton" not in sys.modules or os.environ.get("TRITON_INTERPRET") == "1"
    os.environ["TRITON_INTERPRET"] = "1"
    _compute_in_float64()
    _choose_the_first_configuration()
    _count_with_tensors()
    _sort_stably()


def _compute_in_float64() -> None:
    """Replaces smaller types by float64 in kernels, and float32 in their outputs and in the layers around them.

    Some kernels round to half precision whatever their inputs are: the chunked kernel of RWKV-7 inverts a matrix in
    float16, which gives errors of 5e-5.
    """
    import triton.language as tl

    for name in ("float32", "float16"):
        setattr(tl, name, tl.float64)
        setattr(tl.core, name, tl.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float64)


def _choose_the_first_configuration() -> None:
    """Replaces autotuning, which needs a device. All configurations compute the same results."""
    from triton.runtime.autotuner import Autotuner

    initialise = Autotuner.__init__

    def with_benchmark(self: Any, *arguments: Any, **options: Any) -> None:
        options["do_bench"] = options.get("do_bench") or (lambda *_, **__: [0.0, 0.0, 0.0])
        initialise(self, *arguments, **options)

    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, arguments, strict=False))
        config = self.configs[0]
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **options, **config.all_kwargs()})
        result = self.fn.run(*arguments, **options, **config.all_kwargs())
        self.nargs = None
        return result

    Autotuner.__init__, Autotuner.run = with_benchmark, run
    from fla.ops.utils import cache

    if hasattr(cache, "CachedAutotuner"):
        cache.CachedAutotuner.run = run


def _count_with_tensors() -> None:
    """Makes loop counters tensors. Kernels call their methods, but the interpreter has integers."""
    import numpy
    import triton.language as tl
    from triton.runtime import interpreter

    is_inside = [False]
    call = interpreter.GridExecutor.__call__

    def counted(*bounds: Any) -> Iterator[Any]:
        numbers = builtins.range(*(int(getattr(x, "value", x)) for x in bounds)) if is_inside[0] else None
        if numbers is None:
            return iter(builtins.range(*bounds))
        handles = (interpreter.TensorHandle(numpy.array([i], dtype=numpy.int32), tl.int32) for i in numbers)
        return (tl.core.tensor(handle, tl.int32) for handle in handles)

    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        is_inside[0] = True
        self.fn.__globals__["range"] = counted
        try:
            return call(self, *arguments, **options)
        finally:
            is_inside[0] = False

    interpreter.GridExecutor.__call__ = run


def _sort_stably() -> None:
    """Mixture-of-Memories sorts tokens by memory and relies on their order in time, which a sort on a CPU loses."""
    argsort = torch.Tensor.argsort
    torch.Tensor.argsort = partialmethod(argsort, stable=True)  # type: ignore[assignment]
