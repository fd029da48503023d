"""Times `scan` and its alternatives in one run on one machine.

    python benchmarks/scan.py                           # prints the tables
    python benchmarks/scan.py --output-dir docs/measurements --json scan.json
    python benchmarks/scan.py --cells mamba3 efla --output-dir docs/measurements    # replaces rows of cells.csv

The first table has the delta rule at every shape, forward and forward + backward:
- eager loops over time, batched over B and H: with `x[:, t]`, with the sequence unbound once (its backward pass is not
  quadratic in T), and with the step under `torch.compile`;
- all backends;
- `lax.scan` under jit and a loop in numba (forward only), if JAX and numba are installed;
- causal softmax attention (SDPA), for comparison;
- the bytes that autograd saves for the backward pass.

Further tables have every cell on all of its backends and as a handwritten loop (`benchmarks/eager.py`), single time
steps, and the rate of a matrix product. Times are medians in milliseconds. The runs of a table alternate, since the
speed of a shared machine varies.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from math import nan
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import eager
from csv_tables import replace_rows, write_tables
from fastweights import Cell, explain, scan
from fastweights.testing import backends_of
from fastweights.testing.samples import Shape, sample_inputs, sample_params
from fastweights.training.run_folder.environment import environment
from names import one_of

SHAPES = [
    Shape(8, 256, 8, 16, 16),
    Shape(16, 456, 16, 16, 16),
    Shape(32, 50, 4, 32, 32),
    Shape(4, 1024, 8, 64, 64),
    Shape(1, 8192, 8, 64, 64),
    Shape(8, 256, 8, 8, 8),
    Shape(8, 256, 8, 24, 24),
    Shape(8, 256, 8, 100, 100),
    Shape(8, 256, 8, 128, 128),
]
CELL_SHAPES = [Shape(8, 256, 8, 16, 16), Shape(32, 50, 4, 32, 32)]
RULE_SHAPES = [Shape(16, 456, 16, 16, 16), Shape(4, 1024, 8, 64, 64)]
RULES = ["sum", "delta", "gated-delta"]
STEPS = {"delta": Shape(1, 1, 8, 16, 16), "gated-delta": Shape(1, 1, 32, 128, 128)}
SHORT = 0.05
"""Seconds below which a call is repeated."""
DELTA = Cell.from_name("delta")
Run = Callable[..., Tensor]


LINES: list[str] = []


def emit(line: str) -> None:
    """Prints a line, and stores it for the CSV files."""
    line = line.replace(" nan ", " ")  # values that were not measured are empty
    LINES.append(line)
    print(line, flush=True)


def by_hand(loop: Callable[[Cell, Any, Any], Tensor]) -> Run:
    """The delta rule as a loop of `benchmarks/eager.py`."""
    return lambda *x: loop(DELTA, DELTA.Inputs(*x), None)


def backend(name: str) -> Run:
    """`scan` on one backend."""
    return lambda *x: scan(DELTA, DELTA.Inputs(*x), backend=name)[0]


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """A different function that is used in its place."""
    return scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)


RUNS: dict[str, Run] = {
    **{name: by_hand(loop) for name, loop in eager.LOOPS.items()},
    "eager loop, torch.compile": by_hand(eager.with_compiled_step),
    "reference": backend("reference"),
    "chunkwise": backend("chunkwise"),
    "compiled": backend("compiled"),
    "softmax attention": softmax_attention,
}


def forward(run: Run, x: list[Tensor]) -> None:
    """Runs the forward pass without a graph."""
    with torch.no_grad():
        run(*x)


def forward_backward(run: Run, x: list[Tensor]) -> None:
    """Runs the forward and backward pass, with gradients of all inputs from a dense output gradient."""
    y = run(*x)
    torch.autograd.grad(y, x, torch.ones_like(y, memory_format=torch.contiguous_format), allow_unused=True)


def milliseconds(functions: dict[str, Callable[[], object]], budget: float = 3.0) -> dict[str, float]:
    """Medians, in milliseconds, of functions that alternate, for at least two rounds or `budget` seconds per function.

    A short function is called five times more per round, and its first call fills the caches."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    start, rounds = time.perf_counter(), 0
    while rounds < 2 or (time.perf_counter() - start < budget * len(functions) and rounds < 20):
        for name, function in functions.items():
            first = _seconds(function)
            times[name] += [_seconds(function) for _ in range(5)] if first < SHORT else [first]
        rounds += 1
    return {name: 1e3 * statistics.median(seconds) for name, seconds in times.items()}


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def saved_bytes(run: Run, x: list[Tensor]) -> int:
    """Bytes of distinct storage that autograd saves, without the inputs."""
    sizes = {leaf.untyped_storage().data_ptr(): 0 for leaf in x}

    def save(tensor: Tensor) -> Tensor:
        sizes.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        alive.append(tensor)  # so that no address is used twice
        return tensor

    alive: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        y = run(*x)
    del y
    return sum(sizes.values())


def jax_scan(x: list[Tensor]) -> dict[str, Callable[[], object]]:
    """`lax.scan` under jit, forward and forward + backward; empty without JAX."""
    try:
        import jax
    except ImportError:
        return {}

    def step(W: Any, x: Any) -> Any:
        q, k, v, beta = x
        W = W + beta * jax.numpy.outer(v - W @ k, k)
        return W, W @ q

    def one(q: Any, k: Any, v: Any, beta: Any) -> Any:
        return jax.lax.scan(step, jax.numpy.zeros((v.shape[-1], k.shape[-1])), (q, k, v, beta))[1]

    over_heads = jax.vmap(jax.vmap(one, in_axes=1, out_axes=1))
    run = jax.jit(over_heads)
    both = jax.jit(jax.grad(lambda *x: over_heads(*x).sum(), argnums=(0, 1, 2, 3)))
    arrays = [jax.numpy.asarray(leaf.detach().numpy()) for leaf in x]
    return {
        "forward": lambda: jax.block_until_ready(run(*arrays)),
        "both": lambda: jax.block_until_ready(both(*arrays)),
    }


def numba_loop(x: list[Tensor]) -> dict[str, Callable[[], object]]:
    """Plain loops in numba, parallel over batch and heads, forward only; empty without numba."""
    try:
        import numba
    except ImportError:
        return {}
    import numpy

    @numba.njit(parallel=True, fastmath=True)
    def run(q: Any, k: Any, v: Any, beta: Any, y: Any) -> None:
        B, T, H, V = v.shape
        K = k.shape[3]
        for n in numba.prange(B * H):
            b, h = n // H, n % H
            W = numpy.zeros((V, K), numpy.float32)
            for t in range(T):
                for i in range(V):
                    e, r = v[b, t, h, i], numpy.float32(0)
                    for j in range(K):
                        e -= W[i, j] * k[b, t, h, j]
                    for j in range(K):
                        W[i, j] += beta[b, t, h] * e * k[b, t, h, j]
                        r += W[i, j] * q[b, t, h, j]
                    y[b, t, h, i] = r

    arrays = [leaf.detach().numpy() for leaf in x]
    numba.set_num_threads(torch.get_num_threads())
    return {"forward": lambda: run(*arrays, numpy.empty_like(arrays[2]))}


def gemm_rate() -> float:
    """GFLOP/s of a 1024 x 1024 x 1024 product in float32."""
    a, b = torch.randn(2, 1024, 1024)
    return 2 * 1024**3 / milliseconds({"": lambda: a @ b})[""] / 1e6


def rate(row: dict[str, Any]) -> float:
    """GFLOP/s of a forward pass of the delta rule: W k, the update, W q."""
    return 6 * row["B"] * row["T"] * row["H"] * row["K"] * row["V"] / row["forward"] / 1e6


def rows_of(shape: Shape) -> list[dict[str, Any]]:
    """Rows of a shape."""
    # The backward pass of an eager loop takes minutes on a long sequence.
    runs = {name: run for name, run in RUNS.items() if shape.T <= 1024 or not name.startswith("eager")}
    x = [leaf.requires_grad_() for leaf in sample_inputs(DELTA, shape, torch.float32)]
    ways = {name: both_ways(run, x) for name, run in runs.items()}
    ways |= {"JAX lax.scan, jit": jax_scan(x), "numba": numba_loop(x)}  # optional packages
    times = {way: milliseconds({name: w[way] for name, w in ways.items() if way in w}) for way in ("forward", "both")}
    state = shape.B * shape.H * shape.K * shape.V * 4 / 1e6
    base = times["both"].get("eager loop", nan)
    rows = []
    for name in times["forward"]:
        forward, both = (times[way].get(name, nan) for way in ("forward", "both"))
        saved = saved_bytes(runs[name], x) / 1e6 if name in runs else nan
        facts = {"forward": forward, "forward_backward": both, "saved_megabytes": saved, "state_megabytes": state}
        rows.append({**shape._asdict(), "run": name, **facts})
        numbers = f"{forward:.2f} | {both:.2f} | {base / both:.1f} | {saved:.1f} | {saved / state:.0f}"
        emit(f"| {shape.B}, {shape.T}, {shape.H}, {shape.K} | {name} | {numbers} |")
    return rows


def both_ways(run: Run, x: list[Tensor]) -> dict[str, Callable[[], object]]:
    """Functions that run the forward pass, and the forward and backward pass."""
    return {"forward": partial(forward, run, x), "both": partial(forward_backward, run, x)}


def every_cell() -> list[tuple[Shape, str]]:
    """Shapes and names of the table of cells."""
    return [*product(CELL_SHAPES, Cell.names()), *product(RULE_SHAPES, RULES)]


def cells(cases: list[tuple[Shape, str]]) -> list[dict[str, Any]]:
    """Rows of cells as handwritten loops and on every backend."""
    rows = []
    emit("\n| B, T, H, K | cell | run | forward ms | forward + backward ms | times the eager loop | auto takes |")
    emit("|---|---|---|---:|---:|---:|---|")
    for shape, name in cases:
        cell = Cell.from_name(name)
        inputs, params = sample_inputs(cell, shape, torch.float32), sample_params(cell, shape, torch.float32)
        x = [leaf.requires_grad_() for leaf in inputs]
        chosen = explain(cell, cell.Inputs(*x), params=params).chosen
        names = [*(eager.LOOPS if name in eager.STEPS else []), *backends_of(cell)]
        ways = {way: both_ways(cell_run(cell, params, way), x) for way in names}
        forwards, boths = (milliseconds({w: ways[w][kind] for w in names}, 1.0) for kind in ("forward", "both"))
        for way in names:
            rows.append({**shape._asdict(), "cell": name, "run": way, "forward": forwards[way], "both": boths[way]})
            emit(
                f"| {shape.B}, {shape.T}, {shape.H}, {shape.K} | {name} | {way} | {forwards[way]:.2f} "
                f"| {boths[way]:.2f} | {boths.get('eager loop', nan) / boths[way]:.1f} | {chosen} |"
            )
    return rows


def cell_run(cell: Cell, params: Any, way: str) -> Run:
    """A cell on a backend, or as an eager loop."""
    if way in eager.LOOPS:
        return lambda *x: eager.LOOPS[way](cell, cell.Inputs(*x), params)
    return lambda *x: scan(cell, cell.Inputs(*x), params=params, backend=way)[0]


def one_step() -> dict[str, dict[str, float]]:
    """Microseconds per call of one time step without gradients, as in streaming and acting."""
    emit("\n| cell | heads | K | run | microseconds |")
    emit("|---|---:|---:|---|---:|")
    return {name: step_of(Cell.from_name(name), shape) for name, shape in STEPS.items()}


def step_of(cell: Cell, shape: Shape) -> dict[str, float]:
    """Microseconds of a cell: on every backend, with an in-place state, and as a handwritten step."""
    x = sample_inputs(cell, shape, torch.float32)
    state = scan(cell, x)[1]
    flat = cell.State(state.W[0]), cell.Inputs(*(leaf[0, 0] for leaf in x))
    calls: dict[str, Callable[[], Any]] = {
        name: partial(scan, cell, x, state, backend=name) for name in backends_of(cell)
    }
    own = cell.State(state.W.clone())
    calls["in place"] = partial(scan, cell, x, own, state_out=own)
    calls["eager step, no checks"] = partial(eager.STEPS[cell.name], *flat, None, None)
    with torch.inference_mode():
        medians = milliseconds({name: partial(_repeat, call) for name, call in calls.items()}, 1.0)
    times = {name: 1e3 * time / 100 for name, time in medians.items()}
    for name, time_of_call in times.items():
        emit(f"| {cell.name} | {shape.H} | {shape.K} | {name} | {time_of_call:.0f} |")
    return times


def _repeat(call: Callable[[], Any]) -> None:
    for _ in range(100):
        call()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all numbers as JSON")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="folder for the tables as CSV files")
    parser.add_argument("--threads", type=int, default=2, help="number of CPU threads (default: %(default)s)")
    known = one_of("cell", Cell.names())
    parser.add_argument("--cells", nargs="+", type=known, metavar="CELL", help="names of cells (default: all)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    eager.check()
    machine = environment()
    emit(f"float32, medians, {options.threads} threads of {machine['processor']}, torch {torch.__version__}.\n")
    if options.cells:
        cells([*product(CELL_SHAPES, options.cells)])
        if options.output_dir:
            replace_rows(options.output_dir / "cells.csv", "\n".join(LINES), keys=2)
        return
    emit(
        "| B, T, H, K | run | forward ms | forward + backward ms | times as fast as the eager loop | kept MB | states |"
    )
    emit("|---|---|---:|---:|---:|---:|---:|")
    rows = [row for shape in SHAPES for row in rows_of(shape)]
    timed_cells, steps = cells(every_cell()), one_step()
    gemm = gemm_rate()
    emit("\n| B, T, H, K | compiled forward pass of the delta rule, as a share of the rate of a matrix product |")
    emit("|---|---:|")
    for row in rows:
        if row["run"] == "compiled":
            emit(f"| {row['B']}, {row['T']}, {row['H']}, {row['K']} | {rate(row) / gemm:.2f} |")
    emit(f"\nA 1024 x 1024 matrix product runs at {gemm:.0f} GFLOP/s. A step of a head counts as 6 K V operations.")
    if options.output_dir:
        write_tables(options.output_dir, ["delta-rule", "cells", "one-step", "matrix-product"], "\n".join(LINES))
    if options.json:
        content = {"environment": machine, "gemm_gflops": gemm, "rows": rows, "cells": timed_cells, "step_us": steps}
        options.json.write_text(json.dumps(content, indent=2))


if __name__ == "__main__":
    main()
