"""Times `scan` beside what else one would use, in one run on one machine.

    python benchmarks/scan.py --json scan.json

For the delta rule at every shape, forward and forward + backward: the eager loop over time, batched over B and H by
hand, as users write it (`x[:, t]`), and with the sequence unbound once (whose backward is not quadratic in T); the
reference; the chunkwise backend; for scale, causal softmax attention (SDPA) and the rate of a large matrix product.
Also the bytes that autograd keeps for the backward pass. Times are medians, in milliseconds.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fastweights import Cell, scan
from fastweights.testing.samples import Shape, sample_inputs

SHAPES = [
    Shape(8, 256, 8, 16, 16),
    Shape(16, 456, 16, 16, 16),
    Shape(32, 50, 4, 32, 32),
    Shape(4, 1024, 8, 64, 64),
    Shape(1, 8192, 8, 64, 64),
]
DELTA = Cell.named("delta")
Run = Callable[..., Tensor]


def eager(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """The loop as users write it: one index a step."""
    q, k, v, beta = (_heads_in_batch(x) for x in (q, k, v, beta.unsqueeze(-1)))
    steps = ((q[:, t], k[:, t], v[:, t], beta[:, t]) for t in range(q.shape[1]))
    return _loop(steps, q.new_zeros(len(q), v.shape[-1], k.shape[-1]))


def eager_unbound(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """The loop with every sequence cut into steps once."""
    q, k, v, beta = (_heads_in_batch(x) for x in (q, k, v, beta.unsqueeze(-1)))
    steps = zip(*(x.unbind(1) for x in (q, k, v, beta)), strict=True)
    return _loop(steps, q.new_zeros(len(q), v.shape[-1], k.shape[-1]))


def _heads_in_batch(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(0, 1)


def _loop(steps: Any, W: Tensor) -> Tensor:
    outputs = []
    for q, k, v, beta in steps:
        error = v - torch.bmm(W, k.unsqueeze(-1)).squeeze(-1)
        W = torch.baddbmm(W, (beta * error).unsqueeze(-1), k.unsqueeze(1))
        outputs.append(torch.bmm(W, q.unsqueeze(-1)).squeeze(-1))
    return torch.stack(outputs, dim=1)


def backend(name: str) -> Run:
    """`scan` on one backend."""
    return lambda *x: scan(DELTA, DELTA.Inputs(*x), backend=name)[0]


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """Not the same function, but what else would stand in its place."""
    return scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)


RUNS: dict[str, Run] = {
    "eager loop": eager,
    "eager loop, unbound": eager_unbound,
    "reference": backend("reference"),
    "chunkwise": backend("chunkwise"),
    "softmax attention": softmax_attention,
}


def forward(run: Run, x: list[Tensor]) -> None:
    """Without a graph."""
    with torch.no_grad():
        run(*x)


def forward_backward(run: Run, x: list[Tensor]) -> None:
    """With gradients to all inputs, from a dense one, as the next layer sends it."""
    y = run(*x)
    torch.autograd.grad(y, x, torch.ones_like(y, memory_format=torch.contiguous_format), allow_unused=True)


def milliseconds(function: Callable[[], None], budget: float = 3.0) -> float:
    """Median of at least 2 calls after one to warm up; no more than `budget` seconds of them."""
    times: list[float] = []
    function()
    while len(times) < 2 or (sum(times) < budget and len(times) < 20):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def saved_bytes(run: Run, x: list[Tensor]) -> int:
    """Bytes of distinct storage that autograd keeps, beyond the inputs."""
    seen = {leaf.untyped_storage().data_ptr(): 0 for leaf in x}

    def keep(tensor: Tensor) -> Tensor:
        seen.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        kept.append(tensor)  # alive, so that no address is used twice
        return tensor

    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = run(*x)
    del y
    return sum(seen.values())


def gemm_rate() -> float:
    """GFLOP/s of a 1024 x 1024 x 1024 product in float32."""
    a, b = torch.randn(2, 1024, 1024)
    return 2 * 1024**3 / milliseconds(lambda: (a @ b).numel() and None) / 1e6


def measure(shape: Shape, name: str, run: Run) -> dict[str, Any]:
    """One row of the table."""
    x = [leaf.requires_grad_() for leaf in sample_inputs(DELTA, shape, torch.float32)]
    return {
        **shape._asdict(),
        "run": name,
        "forward": milliseconds(lambda: forward(run, x)),
        "forward_backward": milliseconds(lambda: forward_backward(run, x)),
        "saved_megabytes": saved_bytes(run, x) / 1e6,
        "state_megabytes": shape.B * shape.H * shape.K * shape.V * 4 / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    print(
        "| B, T, H, K | run | forward ms | forward + backward ms | times as fast as the eager loop | kept MB | states |"
    )
    print("|---|---|---:|---:|---:|---:|---:|")
    for shape in SHAPES:
        for name, run in RUNS.items():
            row = measure(shape, name, run)
            rows.append(row)
            base = next(r for r in rows if r["run"] == "eager loop" and r["T"] == shape.T and r["B"] == shape.B)
            ratio = base["forward_backward"] / row["forward_backward"]
            states = row["saved_megabytes"] / row["state_megabytes"]
            print(
                f"| {shape.B}, {shape.T}, {shape.H}, {shape.K} | {name} | {row['forward']:.1f} "
                f"| {row['forward_backward']:.1f} | {ratio:.1f} | {row['saved_megabytes']:.1f} | {states:.0f} |",
                flush=True,
            )
    gemm = gemm_rate()
    print(f"\nfloat32 matrix product: {gemm:.0f} GFLOP/s; torch {torch.__version__}, {options.threads} threads")
    if options.json:
        environment = {"torch": torch.__version__, "threads": options.threads, "machine": platform.platform()}
        options.json.write_text(json.dumps({"environment": environment, "gemm_gflops": gemm, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
