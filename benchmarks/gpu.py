"""Checks and measures on a GPU, where torch 2.11 or newer and Triton are, in about ten minutes.

    python benchmarks/gpu.py                       # everything, into benchmarks/gpu.json
    python benchmarks/gpu.py --output-dir docs/measurements    # no GPU needed: writes that file's numbers as CSV tables

Checks: for every cell, in a process of its own, results and all gradients equal the float64 reference on the CPU, and
all guarantees of `scan` hold. Memories: forward and back with inputs in bfloat16 at the shapes of the papers and a long
one, by two clocks: as a user calls them (launches in), and as a captured CUDA graph; beside them a loop over time,
causal softmax attention and, if it is installed, flash-linear-attention. Models: the papers' small word models, an
update with all 96 windows. What fails is a row that says why. Every row is kept as it comes; `--part` makes some anew.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from csv_tables import write_tables
from fastweights import Cell, scan
from fastweights.core.files import write_atomically
from fastweights.recipes.irie2021 import table_1
from fastweights.testing import backends_of, checks_in, problem, scan_checks
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_reset, sample_state
from language_model import PUBLISHED, make_update, paper

KEPT = Path(__file__).with_suffix(".json")
CELLS = ("sum", "delta", "gated-delta", "delta-rnn", "delta-lstm", "recurrent-delta-net", "srwm", "fast-weight-rnn")
SHAPES = {
    "language model, small": Shape(96, 256, 8, 16, 16),
    "language model, medium": Shape(56, 384, 8, 32, 32),
    "code execution": Shape(64, 256, 16, 16, 16),
    "agents": Shape(32, 50, 4, 32, 32),
    "few-shot": Shape(128, 64, 16, 16, 16),
    "one long sequence": Shape(1, 8192, 32, 128, 128),
}
LARGER = Shape(2, 70, 2, 32, 16)
CHECKED = {
    torch.float64: (Shape(1, 1, 1, 2, 3), scan_checks.ODD),
    torch.float32: (Shape(1, 1, 1, 2, 3), scan_checks.ODD, LARGER),
    torch.bfloat16: (LARGER,),
}
LOOPED = ("language model, small", "agents")
"""Shapes at which a loop over time is measured, which takes seconds."""
OF_FLA = ("sum", "delta", "gated-delta")
FOR_FLA = ("language model, small", "one long sequence")
"""Shapes at which flash-linear-attention is measured: it tries out its kernels anew for every size of a head, for up to
a minute."""
BATCH = 96
"""Windows of an update of a model, as published."""
MINUTES = 4
"""That the checks of a cell may take."""
OF_OTHER_KERNELS = ("float64_equals_reference", "float32_equals_reference", "bfloat16_equals_reference")
"""Checks at many shapes, each of which would be a kernel more to compile: `equals_reference` has fewer."""
BUSY = " (busy)"
"""Behind rows that were measured while other work kept the processor busy, by hand: then launches take longer."""
TRACED = ("compiles", "exports")
"""Checks of what PyTorch makes of a call, which is the same on all devices."""


def main() -> None:
    """Runs the parts that are asked for, or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="default: all, in this order")
    parser.add_argument("--only", nargs="+", default=[], help="rows whose name has one of these in it")
    parser.add_argument("--json", type=Path, default=KEPT, help="where rows are kept: default %(default)s")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="write the kept numbers there as CSV files")
    parser.add_argument("--one", metavar="CELL", help="print what the checks of a cell say, as JSON")
    options = parser.parse_args()
    if options.output_dir:
        kept = json.loads(options.json.read_text(encoding="utf-8"))
        write_tables(options.output_dir, table_names(kept), page(kept))
        return
    if not torch.cuda.is_available():
        parser.error("there is no GPU here; benchmarks/gpu_proof.py shows what can be shown without one")
    if options.one:
        print(json.dumps(checked(options.one)))
        return
    kept = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    kept["on"] = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton_version()}"
    print(kept["on"], flush=True)
    for part in options.part:
        for name, row in PARTS[part](lambda name: not options.only or any(o in name for o in options.only)):
            kept.setdefault(part, {})[name] = row
            print(part, name, row, flush=True)
            write_atomically(options.json, f"{json.dumps(kept, indent=1)}\n".encode())


def triton_version() -> str:
    """That of the Triton which is installed."""
    import triton

    return str(triton.__version__)


def tried(function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a function gives, or why it failed."""
    try:
        return function()
    except Exception as error:
        return {"failed": " ".join(f"{type(error).__name__}: {error}".split())[:300]}


Wanted = Callable[[str], bool]
Rows = Iterator[tuple[str, dict[str, Any]]]


# Checks -------------------------------------------------------------------------------------------------------------


def checks(wanted: Wanted) -> Rows:
    """Every cell, as many at once as there are cores: to compile its kernels is most of it."""
    names = [name for name in Cell.names() if wanted(name)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(check_alone, name): name for name in names}
        for done in as_completed(running):
            yield running[done], done.result()


def check_alone(name: str) -> dict[str, Any]:
    """What the checks of a cell say, in a process of its own: a kernel that reads beside its memory ends it."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--one", name]
    begin = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60 * MINUTES)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {MINUTES} minutes"}
    if done.returncode:
        return {"failed": " ".join(done.stderr.split()[-60:])}
    return json.loads(done.stdout.splitlines()[-1]) | {"seconds": round(time.monotonic() - begin, 1)}


def checked(name: str) -> dict[str, Any]:
    """All that is checked of a cell, and what is wrong."""
    cell, wrong, number = Cell.from_name(name), dict[str, str](), 0
    every = {"equals_reference": equals_reference, "cuts_lengths": cuts_lengths, **checks_in(scan_checks)}
    with torch.device("cuda"):
        backends = [backend for backend in backends_of(cell) if backend != "reference"]
    for backend, check in product(backends, [c for c in every if c not in (*OF_OTHER_KERNELS, *TRACED)]):
        number += 1
        if found := problem("cuda", every[check], cell, backend):
            wrong[f"{backend}: {check}"] = found
    return {"backends": backends, "checks": number, "wrong": wrong}


def equals_reference(cell: Cell, backend: str) -> None:
    """Results and gradients, with a state and resets, against the reference in float64 on the CPU."""
    for dtype, shape in [(dtype, shape) for dtype, shapes in CHECKED.items() for shape in shapes]:
        got = scan_checks.results_and_gradients(cell, backend, scan_checks.arguments(cell, shape, dtype))
        with torch.device("cpu"):
            a = scan_checks.arguments(cell, shape, dtype).to(torch.float64)
            want = scan_checks.results_and_gradients(cell, "reference", a)
        scan_checks.assert_close({n: x.cpu() for n, x in got.items()}, want, dtype, f"{shape}, {dtype}")


def cuts_lengths(cell: Cell, backend: str) -> None:
    """A sequence that is said to be too long ends with the last step, one that is shorter than nothing is empty."""
    a = scan_checks.arguments(cell, scan_checks.ODD)
    said, meant = (
        a._replace(lengths=torch.tensor(ends)) for ends in ([scan_checks.ODD.T + 9, -1], [scan_checks.ODD.T, 0])
    )
    want, got = (scan_checks.results_and_gradients(cell, backend, x) for x in (meant, said))
    scan_checks.assert_close(got, want, torch.float64)


# Memories -----------------------------------------------------------------------------------------------------------


def memories(wanted: Wanted) -> Rows:
    """Forward and back."""
    for where in SHAPES:
        for name in CELLS:
            for run, make in runs(name, where).items():
                title = f"{where}; {name}; {run}"
                if wanted(title):
                    yield title, tried(lambda m=make, r=run: measured(m(), graph=r != "loop"))
                    torch.cuda.empty_cache()


def runs(name: str, where: str) -> dict[str, Callable[[], Callable[[], Any]]]:
    """By name, what makes a call of forward and backward ready."""
    shape = SHAPES[where]
    found: dict[str, Callable[[], Callable[[], Any]]] = {"compiled": lambda: scanned(name, shape, "compiled")}
    with torch.device("cuda"):
        has_chunks = "chunkwise" in backends_of(Cell.from_name(name))
    if has_chunks:
        found["chunkwise"] = lambda: scanned(name, shape, "chunkwise")
    if where in LOOPED:
        found["loop"] = lambda: scanned(name, shape, "reference")
    if name == "delta":
        found["softmax attention"] = lambda: attention(shape)
    if name in OF_FLA and where in FOR_FLA:
        found["flash-linear-attention"] = lambda: of_fla(name, shape)
    return found


def scanned(name: str, shape: Shape, backend: str) -> Callable[[], Any]:
    """`scan` with a state and resets."""
    cell = Cell.from_name(name)
    with torch.device("cuda"):
        inputs = leaves(sample_inputs(cell, shape, torch.bfloat16))
        params, state = sample_params(cell, shape, torch.float32), sample_state(cell, shape, torch.float32)
        reset = sample_reset(shape)
    params = None if params is None else type(params)(*leaves(params))

    def forward() -> Tensor:
        return scan(cell, cell.Inputs(*inputs), state, params, reset, backend=backend)[0]

    return both(forward, [*inputs, *(params or ())])


def attention(shape: Shape) -> Callable[[], Any]:
    """Causal softmax attention, fused, with heads of the same size."""
    size = (shape.B, shape.H, shape.T, shape.K)
    q, k, v = leaves(torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    return both(lambda: scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v])


def of_fla(name: str, shape: Shape) -> Callable[[], Any]:
    """Its own kernel for the same rule, without resets."""
    from fla.ops.delta_rule import chunk_delta_rule
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.linear_attn import chunk_linear_attn

    with torch.device("cuda"):
        x = sample_inputs(Cell.from_name(name), shape, torch.bfloat16)
    named = dict(zip(x._fields, leaves(x), strict=True))
    given = [named[n] for n in ("q", "k", "v")]
    calls = {
        "sum": lambda: chunk_linear_attn(*given, normalize=False)[0],
        "delta": lambda: chunk_delta_rule(*given, named["beta"])[0],
        "gated-delta": lambda: chunk_gated_delta_rule(*given, named["decay"].float().log(), named["beta"])[0],
    }
    return both(calls[name], list(named.values()))


def leaves(tensors: Any) -> list[Tensor]:
    """The same numbers, of which gradients are wanted."""
    return [x.detach().requires_grad_() for x in tensors]


def both(forward: Callable[[], Tensor], wanted: list[Tensor]) -> Callable[[], Any]:
    """A call of forward and backward."""
    back: list[Tensor] = []

    def call() -> Any:
        y = forward()
        if not back:
            back.append(torch.randn_like(y))
        return torch.autograd.grad(y, wanted, back[0], allow_unused=True)

    return call


def measured(call: Callable[[], Any], graph: bool = True) -> dict[str, Any]:
    """Seconds of the first call, medians by both clocks in milliseconds, and the most memory beyond what was there."""
    begin = time.monotonic()
    call()
    torch.cuda.synchronize()
    first = time.monotonic() - begin
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    found = {"first call, s": round(first, 2), "ms": median(call), "peak MB": round(peak / 1e6, 1)}
    try:
        return found | ({"graph, ms": median(captured(call))} if graph else {})
    except Exception as error:  # what cannot be captured has one clock only
        return found | {"graph failed": " ".join(f"{type(error).__name__}: {error}".split())[:200]}


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """The replay of a CUDA graph of a call."""
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


def median(call: Callable[[], Any], most: float = 0.3) -> float:
    """Of up to 20 calls, in at most about so many seconds."""
    begin, times = time.monotonic(), list[float]()
    while len(times) < 20 and (len(times) < 3 or time.monotonic() - begin < most):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return round(sorted(times)[len(times) // 2], 3)


# Models -------------------------------------------------------------------------------------------------------------


def models(wanted: Wanted) -> Rows:
    """An update of the papers' small word models, in float32 and under bfloat16 autocast, by random words."""
    for precision, name in product(("bf16", "float32"), table_1.MODELS):
        title = f"{precision}; {name}"
        if wanted(title):
            model, half = paper(name, batch=BATCH), precision == "bf16"
            yield title, tried(lambda m=model, h=half: measured(make_update(m, "cuda", h), graph=False))
            torch.cuda.empty_cache()


PARTS = {"checks": checks, "memories": memories, "models": models}


# The page -----------------------------------------------------------------------------------------------------------


def page(kept: dict[str, Any]) -> str:
    """What was found, as Markdown."""
    rows = kept["checks"]
    wrong = [f"{name}: {row.get('failed') or row['wrong']}" for name, row in rows.items() if row.get("wrong", True)]
    said = f"**{len(rows) - len(wrong)} of {len(rows)} cells pass all of their checks**"
    return "\n\n".join(
        [
            f"{kept['on']}.",
            "; ".join([f"{said}, {sum(row.get('checks', 0) for row in rows.values()):,} together", *wrong]) + ".",
            *filter(None, (of_shape(where, kept["memories"]) for where in SHAPES)),
            of_models(kept["models"]),
        ]
    )


def table_names(kept: dict[str, Any]) -> list[str]:
    """Names of the tables of the page, such as "gpu-one-long-sequence"."""
    places = [where for where in SHAPES if of_shape(where, kept["memories"])]
    return [*(f"gpu-{where.replace(', ', '-').replace(' ', '-')}" for where in places), "gpu-models"]


def of_shape(where: str, rows: dict[str, Any]) -> str:
    """A table of memories; nothing where none was measured."""
    sizes = ", ".join(f"{name} = {size}" for name, size in SHAPES[where]._asdict().items())
    lines = [
        f"| {where}: {sizes} | as a graph, ms | launches in, ms | MB |",
        "|---|---:|---:|---:|",
    ]
    for title, row in rows.items():
        place, _, name = title.partition("; ")
        if place == where:
            lines.append(f"| {name.replace('; ', ', ')}{BUSY * row.get('busy', False)} | {cells(row)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def cells(row: dict[str, Any]) -> str:
    """The columns of a row behind its name."""
    if "failed" in row:
        return f"{row['failed'].partition('. ')[0]} | |"
    return f"{row.get('graph, ms', '')} | {row['ms']} | {row['peak MB']:,.0f}"


def of_models(rows: dict[str, Any]) -> str:
    """The table of models, beside the papers' ratios."""
    lines = ["| an update of 96 x 256 words | ms | words a second | times as fast as transformer | the paper's | MB |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for title, row in rows.items():
        precision, _, name = title.partition("; ")
        if "failed" in row:
            lines.append(f"| {precision}, {name} | {row['failed']} | | | | |")
            continue
        ratio = f"{rows[f'{precision}; transformer']['ms'] / row['ms']:.2f}"
        numbers = f"{BATCH * 256 * 1000 / row['ms']:,.0f} | {ratio} | {PUBLISHED.get(name, '')} | {row['peak MB']:,.0f}"
        lines.append(f"| {precision}, {name}{BUSY * row.get('busy', False)} | {row['ms']} | {numbers} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
