"""Checks and measures the kernels on a GPU, in less than ten minutes: where torch 2.11 or newer and Triton are.

    python benchmarks/gpu.py --json gpu.json

First the guarantees of `scan`, on the GPU: results and all gradients of every cell equal the float64 reference. Then,
in the same process, forward and backward of eight memories with inputs in bfloat16, at the shapes of the papers and a
long one, by two clocks: as a user calls it (launches in), and as a captured CUDA graph. Beside them the loop over time,
eager and under torch.compile, causal softmax attention and, if it is installed, flash-linear-attention. What fails is a
row that says why; what is left when the time is up is not measured, and said so.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fastweights import Cell, scan
from fastweights.testing import backends_of, scan_checks
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_reset, sample_state

CELLS = ("sum", "delta", "gated-delta", "delta-rnn", "delta-lstm", "recurrent-delta-net", "srwm", "fast-weight-rnn")
SHAPES = {
    "language model, small": Shape(96, 256, 8, 16, 16),
    "language model, medium": Shape(56, 384, 8, 32, 32),
    "code execution": Shape(64, 256, 16, 16, 16),
    "agents": Shape(32, 50, 4, 32, 32),
    "few-shot": Shape(128, 64, 16, 16, 16),
    "one long sequence": Shape(1, 8192, 32, 128, 128),
}
CHECKED = (Shape(1, 1, 1, 2, 3), Shape(2, 37, 3, 5, 4), Shape(2, 70, 2, 32, 16))
LOOPED = 512
"""Steps up to which a loop over time is measured: a longer one takes minutes to record."""
OF_FLA = ("sum", "delta", "gated-delta")
SECONDS = 570.0
MINUTES_OF_CHECKS = 3.0


def main() -> None:
    """Checks, measures, and prints a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="where the rows are written")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="when to stop: default %(default)s")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no GPU here; benchmarks/gpu_proof.py shows what can be shown without one")
    began, rows = time.monotonic(), list[dict[str, Any]]()
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for row in _rows(began, options.seconds):
        rows.append(row)
        print(row, flush=True)
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _rows(began: float, seconds: float) -> Iterator[dict[str, Any]]:
    for name in Cell.names():
        if time.monotonic() - began < 60 * MINUTES_OF_CHECKS:
            yield {"check": name} | _tried(lambda n=name: checked(n))
        else:
            yield {"check": name, "left out": "no time"}
    for where, shape in SHAPES.items():
        for name in CELLS:
            for run, make in runs(name, shape).items():
                row = {"shape": where, "cell": name, "run": run}
                if time.monotonic() - began > seconds:
                    yield row | {"left out": "no time"}
                    continue
                yield row | _tried(lambda m=make: measured(m()))
                torch.cuda.empty_cache()


def _tried(function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a function gives, or why it failed."""
    begin = time.monotonic()
    try:
        found = function()
    except Exception as error:
        found = {"failed": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
    return found | {"seconds": round(time.monotonic() - begin, 1)}


def checked(name: str) -> dict[str, Any]:
    """Compares results and gradients with those of the reference in float64, with a state and resets."""
    cell = Cell.named(name)
    backends = [backend for backend in backends_of(cell) if backend != "reference"]
    for shape, dtype in product(CHECKED, (torch.float64, torch.float32, torch.bfloat16)):
        a = scan_checks.arguments(cell, shape, dtype)
        want = scan_checks.results_and_gradients(cell, "reference", a.to(torch.float64))
        for backend in backends:
            twice = [scan_checks.results_and_gradients(cell, backend, _to_gpu(a)) for _ in range(2)]
            got = {n: x.cpu() for n, x in twice[0].items()}
            scan_checks.assert_close(got, want, dtype, f"{shape}, {backend}")
            assert all(torch.equal(x, twice[1][n]) for n, x in twice[0].items()), f"two runs differ, {backend}"
    return {"checked": backends}


def _to_gpu(a: scan_checks.Arguments) -> scan_checks.Arguments:
    def moved(part: Any) -> Any:
        if part is None or isinstance(part, Tensor):
            return None if part is None else part.cuda()
        return type(part)(*(x.cuda() for x in part))

    return scan_checks.Arguments(*map(moved, a))


def runs(name: str, shape: Shape) -> dict[str, Callable[[], Callable[[], list[Tensor]]]]:
    """By name, what makes a call of forward and backward ready."""
    found = {"compiled": lambda: _scanned(name, shape, "compiled")}
    if "chunkwise" in backends_of(Cell.named(name)):
        found["chunkwise"] = lambda: _scanned(name, shape, "chunkwise")
    if shape.T <= LOOPED:
        found["loop, eager"] = lambda: _scanned(name, shape, "reference")
        found["loop, torch.compile"] = lambda: _scanned(name, shape, "reference", compile=True)
    if name == "delta":
        found["softmax attention"] = lambda: _attention(shape)
    if name in OF_FLA:
        found["flash-linear-attention"] = lambda: _of_fla(name, shape)
    return found


def _scanned(name: str, shape: Shape, backend: str, compile: bool = False) -> Callable[[], list[Tensor]]:
    cell = Cell.named(name)
    inputs = _leaves(sample_inputs(cell, shape, torch.bfloat16, "cuda"))
    params = sample_params(cell, shape, torch.float32)
    params = None if params is None else type(params)(*_leaves(x.cuda() for x in params))
    reset = sample_reset(shape).cuda()
    state = type(sample_state(cell, shape))(*(x.float().cuda() for x in sample_state(cell, shape)))

    def forward() -> Tensor:
        return scan(cell, cell.Inputs(*inputs), state, params, reset, backend=backend)[0]

    called = torch.compile(forward) if compile else forward
    return _both(called, [*inputs, *(params or ())])


def _attention(shape: Shape) -> Callable[[], list[Tensor]]:
    size = (shape.B, shape.H, shape.T, shape.K)
    q, k, v = _leaves(torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    return _both(lambda: scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v])


def _of_fla(name: str, shape: Shape) -> Callable[[], list[Tensor]]:
    """Its own kernel for the same rule."""
    from fla.ops.delta_rule import chunk_delta_rule
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.linear_attn import fused_recurrent_linear_attn

    x = sample_inputs(Cell.named(name), shape, torch.bfloat16, "cuda")
    leaves = dict(zip(x._fields, _leaves(x), strict=True))
    given = [leaves[n] for n in ("q", "k", "v")]
    calls = {
        "sum": lambda: fused_recurrent_linear_attn(*given, normalize=False)[0],
        "delta": lambda: chunk_delta_rule(*given, leaves["beta"])[0],
        "gated-delta": lambda: chunk_gated_delta_rule(*given, leaves["decay"].log(), leaves["beta"])[0],
    }
    return _both(calls[name], list(leaves.values()))


def _leaves(tensors: Any) -> list[Tensor]:
    return [x.detach().requires_grad_() for x in tensors]


def _both(forward: Callable[[], Tensor], leaves: list[Tensor]) -> Callable[[], list[Tensor]]:
    """A call of forward and backward."""
    back: list[Tensor] = []

    def call() -> list[Tensor]:
        y = forward()
        if not back:
            back.append(torch.randn_like(y))
        return list(torch.autograd.grad(y, leaves, back[0], allow_unused=True))

    return call


def measured(call: Callable[[], list[Tensor]]) -> dict[str, Any]:
    """The time of the first call, medians by both clocks in milliseconds, and the most memory beyond the inputs."""
    begin = time.monotonic()
    call()
    torch.cuda.synchronize()
    first = time.monotonic() - begin
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    found = {"first call, s": round(first, 2), "ms": _median(call), "peak MB": round(peak / 1e6, 1)}
    try:
        found["graph, ms"] = _median(_captured(call))
    except Exception as error:  # what cannot be captured has one clock only
        found["graph failed"] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return found


def _captured(call: Callable[[], list[Tensor]]) -> Callable[[], Any]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _median(call: Callable[[], Any], most: float = 1.0) -> float:
    """Of up to 20 calls, in at most about a second."""
    begin, times = time.monotonic(), list[float]()
    while len(times) < 20 and (not times or time.monotonic() - begin < most):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return round(sorted(times)[len(times) // 2], 3)


if __name__ == "__main__":
    main()
