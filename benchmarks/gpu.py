"""Checks and times the GPU kernels, most important rows first, in at most eight minutes.

    python benchmarks/gpu.py                      # appends to docs/measurements/gpu.csv
    python benchmarks/gpu.py --minutes 4          # stops earlier; the next run continues where this one stopped
    python benchmarks/gpu.py --only delta kda     # rows whose key contains one of the words
    python benchmarks/gpu.py --dry-run            # one tiny shape, on the CPU if there is no GPU

needs torch 2.11 or newer with Triton. A row is written as soon as it is measured. Rows that are in the file are not
measured again, failed ones included: delete a line to repeat it. The parts, in this order:

- checks: the chunk kernels have the values and gradients of the float64 reference, also cut into segments, and are
  bit-identical in a second run, alone and in a batch. Every cell has its own process, so that a crash affects one row.
  Checks also fill the cache of Triton.
- chunks: forward and backward pass of the chunk kernels, of flash-linear-attention, FlashQLA and softmax attention. One
  long sequence also runs without segments.
- recurrent: cells that run step by step, also with their affine part in chunks, and a loop in PyTorch.
- model: a training step of the papers' small word models with 96 windows.

Times are medians in milliseconds, as a replayed CUDA graph and with launches; of models, one row has a graph. The ratio
divides the time of a graph by that of flash-linear-attention in the same file.
"""

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights import Cell, scan
from fastweights.core.files import write_atomically
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape
from gpu_peers import PEERS, sample
from language_model import blocks, make_update, paper

FILE = Path(__file__).parents[1] / "docs" / "measurements" / "gpu.csv"
CELLS = ("delta", "gated-delta", "sum", "kda", "gla", "rwkv7", "gated", "mlstm")
FORMS = ("delta-product", "titans", "mamba3")
"""Cells with other forms of the chunk kernels: several erasing writes, and states that mix."""
LONG = ("delta", "gated-delta", "kda")
"""Cells that run one long sequence with and without segments."""
RECURRENT = ("delta-rnn", "recurrent-delta-net", "srwm", "delta-lstm")
PEELED = ("delta-rnn", "srwm", "delta-lstm")
"""Recurrent cells with an affine part, which runs in chunks next to a compiled loop."""
MODELS = ("delta-net", "transformer", "linear")
SHAPES = {
    "language model": Shape(96, 256, 8, 16, 16),
    "training": Shape(8, 2048, 16, 128, 128),
    "one long sequence": Shape(1, 8192, 32, 128, 128),
    "middle": Shape(8, 1024, 8, 64, 64),
}
TINY = {"tiny": Shape(1, 18, 1, 3, 3)}
CHECKED = tuple((Shape(2, 70, 2, size, size), dtype) for size in (16, 64, 128) for dtype in ("bfloat16", "float32"))
"""Checked sizes are those of the timed shapes, so that the checks compile their kernels."""
MANY = Shape(96, 40, 12, 16, 16)
"""More than 1,024 programs: some versions of Triton compile products that fail only then."""
BATCH = 96
"""Windows of a training step of a model, as published."""
CHECK_SECONDS = 240
"""Maximum time of the checks of a cell."""
COMPILED = "compiled training step"
GRAPHED = "graphed training step"
"""The compiled training step, also as a CUDA graph."""
UNCUT = "chunkwise, not cut"
"""The run in which a long sequence is not cut into segments."""
FLA = "flash-linear-attention"
FIRST_PEERS = (("delta", "softmax attention"), ("delta", FLA), ("gated-delta", FLA), ("sum", FLA))
"""The rules and libraries that are measured before the others."""
KEY = ("part", "shape", "inputs", "cell", "run")
COLUMNS = (*KEY, "graph ms", "launches ms", "ratio to fla", "first call s", "peak MB", "result", "card")

Result = dict[str, Any]


class Task(NamedTuple):
    """A row to measure."""

    key: tuple[str, ...]
    run: Callable[[], Result]


class Machine(NamedTuple):
    """The device, and the shapes that are timed and checked on it."""

    device: str
    shapes: dict[str, Shape]
    checked: tuple[tuple[Shape, str], ...]
    many: Shape

    @property
    def is_gpu(self) -> bool:
        """Whether the device has CUDA graphs and events."""
        return self.device == "cuda"

    @property
    def card(self) -> str:
        """The card, and the versions that compile for it."""
        import triton

        name = torch.cuda.get_device_name() if self.is_gpu else "no GPU"
        return f"{name}, torch {torch.__version__}, Triton {triton.__version__}"


def machine(dry_run: bool) -> Machine:
    """This machine."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if dry_run:
        return Machine(device, TINY, ((TINY["tiny"], "bfloat16"), (TINY["tiny"], "float32")), Shape(2, 18, 1, 3, 3))
    return Machine(device, SHAPES, CHECKED, MANY)


def main(arguments: list[str] | None = None) -> None:
    """Measures missing rows within the time limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8.0, help="minutes after which no row begins (default: 8)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="rows whose key contains one of these")
    parser.add_argument("--csv", type=Path, default=FILE, help="file of the rows (default: docs/measurements/gpu.csv)")
    parser.add_argument("--dry-run", action="store_true", help="one tiny shape, on the CPU if there is no GPU")
    parser.add_argument("--check", metavar="CELL", help="cell whose check is printed as JSON")
    options = parser.parse_args(arguments)
    here = machine(options.dry_run)
    if not here.is_gpu and not options.dry_run:
        parser.error("there is no GPU. Run the checks without a GPU: benchmarks/gpu_proof.py")
    if options.check:
        print(json.dumps(check(options.check, here)))
        return
    end, table = time.monotonic() + 60 * options.minutes, Table(options.csv, here.card)
    waiting = [task for task in tasks(here) if table.wants(task.key, options.only)]
    run_all(waiting, table, here, end)


def run_all(waiting: list[Task], table: "Table", here: Machine, end: float) -> None:
    """Runs the checks in parallel, then the other tasks one by one."""
    checks = [task for task in waiting if task.key[0] == "checks"]
    with ThreadPoolExecutor(os.cpu_count() if here.is_gpu else 1) as pool:
        running = {pool.submit(attempt, task.run): task.key for task in checks}
        for done in as_completed(running):
            table.add(running[done], done.result())
    rest = [task for task in waiting if task.key[0] != "checks"]
    for number, task in enumerate(rest):
        if time.monotonic() > end:
            print(f"{len(rest) - number} rows are left. Run the same command again to continue.")
            return
        table.add(task.key, attempt(task.run))
        if here.is_gpu:
            continue_after_fault(end)


def continue_after_fault(end: float) -> None:
    """Restarts the script if a kernel has broken the process. The row of the kernel is written, so others follow."""
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        left = f"--minutes={max(0.0, (end - time.monotonic()) / 60)}"
        os.execv(sys.executable, [sys.executable, *sys.argv, left])


def attempt(run: Callable[[], Result]) -> Result:
    """Result of a row, or the reason of its failure."""
    try:
        return {"result": "ok"} | run()
    except Exception as error:
        return {"result": " ".join(f"{type(error).__name__}: {error}".split())[:300]}


class Table:
    """The rows of a file by key. Every new row is written at once."""

    def __init__(self, path: Path, card: str) -> None:
        self.path, self.card = path, card
        rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
        self.rows: dict[tuple[str, ...], Result] = {self._key(row, row["card"]): dict(row) for row in rows}

    def _key(self, row: Result, card: str) -> tuple[str, ...]:
        return (*(row[name] for name in KEY), card)

    def wants(self, key: tuple[str, ...], only: list[str]) -> bool:
        """Whether a row is requested and missing."""
        return (*key, self.card) not in self.rows and (not only or any(word in " ".join(key) for word in only))

    def add(self, key: tuple[str, ...], result: Result) -> None:
        """Adds a row and writes the file."""
        row = dict(zip(KEY, key, strict=True)) | result | {"card": self.card}
        self.rows[self._key(row, self.card)] = row
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"ratio to fla": self.ratio(row)} for row in self.rows.values())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, text.getvalue().encode())
        print(*key, result | {"ratio to fla": self.ratio(row)}, sep="; ", flush=True)

    def ratio(self, row: Result) -> str:
        """The time of a graph relative to that of flash-linear-attention, whose inputs are bfloat16."""
        theirs = self.rows.get((row["part"], row["shape"], "bfloat16", row["cell"], FLA, row["card"]), {})
        if not row.get("graph ms") or not theirs.get("graph ms"):
            return ""
        return f"{float(row['graph ms']) / float(theirs['graph ms']):.2f}"


def tasks(here: Machine) -> Iterator[Task]:
    """All rows, the most important ones first."""
    for cell in CELLS + FORMS:
        yield Task(("checks", "", "", cell, "chunkwise"), partial(check_alone, cell, here))
    for shape, cell in product(here.shapes, CELLS):
        yield chunk_task(here, shape, cell, "chunkwise", "bfloat16")
    for shape, (cell, run) in product(here.shapes, FIRST_PEERS):
        yield chunk_task(here, shape, cell, run, "bfloat16")
    for shape, cell in product((name for name, sizes in here.shapes.items() if sizes.B == 1), LONG):
        yield chunk_task(here, shape, cell, UNCUT, "bfloat16")
    for shape, cell in product(here.shapes, CELLS):
        yield chunk_task(here, shape, cell, "chunkwise", "float32")
    for shape, cell in product(here.shapes, FORMS):
        yield chunk_task(here, shape, cell, "chunkwise", "bfloat16")
    yield from recurrent_tasks(here)
    yield from model_tasks(here)
    for shape in here.shapes:
        for cell, run in (("gated-delta", "FlashQLA"), *((cell, FLA) for cell in ("kda", "gla", "rwkv7", "gated"))):
            yield chunk_task(here, shape, cell, run, "bfloat16")


# Checks -------------------------------------------------------------------------------------------------------------


def check_alone(cell: str, here: Machine) -> Result:
    """The result of the checks of a cell, in its own process on a GPU."""
    if not here.is_gpu:
        return check(cell, here)
    command = [sys.executable, "-W", "ignore", __file__, "--check", cell]
    command += ["--dry-run"] * (here.shapes is TINY)
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "2"}, capture_output=True, text=True, timeout=CHECK_SECONDS
    )
    if done.returncode:
        raise RuntimeError(" ".join(done.stderr.split()[-40:]))
    return json.loads(done.stdout.splitlines()[-1])


def check(name: str, here: Machine) -> Result:
    """The first call of a cell and its problems."""
    cell, problems, begin = Cell.from_name(name), [], time.monotonic()
    for shape, dtype in here.checked:
        if problem := attempt(partial(equals_reference, cell, shape, getattr(torch, dtype), here.device)):
            problems += [problem["result"]] * (problem["result"] != "ok")
    with segments(longest=1, size=1):
        shape, dtype = here.checked[0]
        divided = attempt(lambda: equals_reference(cell, shape, getattr(torch, dtype), here.device))["result"]
    problems += [f"cut: {divided}"] * (divided != "ok")
    reproducible = attempt(lambda: is_bit_identical(cell, here))["result"]
    problems += [reproducible] * (reproducible != "ok")
    return {"result": "; ".join(problems) or "ok", "first call s": round(time.monotonic() - begin, 1)}


@contextmanager
def segments(longest: int, size: int) -> Iterator[None]:
    """Cuts sequences of more than `longest` chunks into segments of `size` chunks."""
    from fastweights.backends.chunkwise.triton import fused_scan

    changed = {"LONG": longest + 1, "SEGMENT": size, "FULL": float("inf"), "processors_of": lambda device: 1}
    before = {name: getattr(fused_scan, name) for name in changed}
    try:
        vars(fused_scan).update(changed)
        yield
    finally:
        vars(fused_scan).update(before)


def equals_reference(cell: Cell, shape: Shape, dtype: torch.dtype, device: str) -> Result:
    """Compares values and gradients with the float64 reference on the CPU, with resets in float32."""
    a = scan_checks.arguments(cell, shape, dtype)
    if dtype != torch.float32:  # the kernels read half-precision inputs themselves where there is no reset
        a = a._replace(reset=None)
    want = scan_checks.results_and_gradients(cell, "reference", a.to(torch.float64))
    got = scan_checks.results_and_gradients(cell, "chunkwise", on(device, a))
    scan_checks.assert_close({n: x.cpu() for n, x in got.items()}, want, dtype, f"{shape}, {dtype}")
    return {}


def on(device: str, a: Any) -> Any:
    """Arguments on a device."""
    return torch.utils._pytree.tree_map_only(Tensor, lambda x: x.to(device), a)


def is_bit_identical(cell: Cell, here: Machine) -> Result:
    """Asserts that two runs of many heads are bit-identical, and so is the last sequence alone."""
    a = on(here.device, scan_checks.arguments(cell, here.many, torch.float32))._replace(reset=None)
    one, again = (scan_checks.results_and_gradients(cell, "chunkwise", a) for _ in range(2))
    changed = [name for name, x in one.items() if not torch.equal(x, again[name])]
    inputs, state = (type(x)(*(leaf[-1:] for leaf in x)) for x in (a.inputs, a.state))
    alone, _ = scan_checks.run(cell, "chunkwise", a._replace(inputs=inputs, state=state))
    changed += ["y alone"] * (not torch.equal(alone, one["y"][-1:]))
    if changed:
        raise AssertionError(f"other bits in {', '.join(changed)} with {here.many}")
    return {}


# Passes -------------------------------------------------------------------------------------------------------------


def chunk_task(here: Machine, shape: str, cell: str, run: str, inputs: str) -> Task:
    """The forward and backward pass of a rule, by this library or by another."""
    sizes, dtype = here.shapes[shape], getattr(torch, inputs)
    title = f"{shape}: {' '.join(f'{axis}{size}' for axis, size in sizes._asdict().items())}"
    make = peer_pass if run in PEERS else scan_pass

    def measure() -> Result:
        if run != UNCUT:
            return measured(make(cell, sizes, dtype, run, here.device), here.is_gpu)
        with segments(longest=sizes.T, size=1):
            return measured(scan_pass(cell, sizes, dtype, "chunkwise", here.device), here.is_gpu)

    return Task(("chunks", title, inputs, cell, run), measure)


def recurrent_tasks(here: Machine) -> Iterator[Task]:
    """Cells that run step by step, at the first shape, and `delta` for comparison with its chunks."""
    shape, sizes = next(iter(here.shapes.items()))
    runs = [("delta", "compiled"), *product(RECURRENT, ("compiled",)), *product(PEELED, ("chunkwise",))]
    runs += product(RECURRENT, ("reference",))
    for cell, run in runs:
        measure = partial(measure_recurrent, cell, sizes, run, here)
        yield Task(("recurrent", shape, "bfloat16", cell, run), measure)


def measure_recurrent(cell: str, sizes: Shape, run: str, here: Machine) -> Result:
    """Times of `scan` with a backend, also as a CUDA graph where it is no loop in PyTorch."""
    has_graph = here.is_gpu and run != "reference"
    return measured(scan_pass(cell, sizes, torch.bfloat16, run, here.device), has_graph)


def scan_pass(name: str, shape: Shape, dtype: torch.dtype, backend: str, device: str) -> Callable[[], Any]:
    """The forward and backward pass of `scan`."""
    cell: Any = Cell.from_name(name)
    if name in CELLS:
        named = sample(name, shape, dtype, device)
        a = scan_checks.Arguments(cell.Inputs(*(named[n] for n in cell.Inputs._fields)), None, None, None)
    else:
        a = on(device, scan_checks.arguments(cell, shape, dtype))._replace(reset=None, state=None)
        a = scan_checks.with_gradients(a)
    return both(lambda: scan(cell, *a, backend=backend)[0], [*a.inputs, *(a.params or ())])


def peer_pass(cell: str, shape: Shape, dtype: torch.dtype, run: str, device: str) -> Callable[[], Any]:
    """The forward and backward pass of another library."""
    forward, named = PEERS[run](cell), sample(cell, shape, dtype, device)
    return both(lambda: forward(named), list(named.values()))


def both(forward: Callable[[], Tensor], leaves: list[Tensor]) -> Callable[[], Any]:
    """A call of the forward and backward pass."""
    gradients: list[Tensor] = []

    def call() -> Any:
        y = forward()
        if not gradients:
            gradients.append(torch.randn_like(y))
        return torch.autograd.grad(y, leaves, gradients[0], allow_unused=True)

    return call


# Models -------------------------------------------------------------------------------------------------------------


def model_tasks(here: Machine) -> Iterator[Task]:
    """A training step of word models, in bfloat16 under autocast and in float32, also compiled and as a graph."""
    runs = [*product(("bfloat16", "float32"), MODELS, ("training step",))]
    runs += [("bfloat16", MODELS[0], run) for run in (COMPILED, GRAPHED)]
    for inputs, name, run in runs:
        measure = partial(measure_model, name, inputs, run, here)
        yield Task(("model", f"{BATCH} windows of 256", inputs, name, run), measure)


def measure_model(name: str, inputs: str, run: str, here: Machine) -> Result:
    """Times of a training step of a model."""
    step = update(name, inputs == "bfloat16", run in (COMPILED, GRAPHED), here)
    return measured(step, here.is_gpu and run == GRAPHED)


def update(name: str, half: bool, compiles: bool, here: Machine) -> Callable[[], None]:
    """A training step of a model."""
    model = paper(name, batch=BATCH)
    if here.shapes is TINY:
        model = blocks(name, window=4, batch=1)
        model = model._replace(
            options=model.options | {"d_model": 8, "num_layers": 1, "num_heads": 2, "cutoffs": (9, 30)}
        )
    return make_update(model, here.device, half, compiles)


# Clocks -------------------------------------------------------------------------------------------------------------


def measured(call: Callable[[], Any], has_graph: bool) -> Result:
    """Seconds of the first call, medians in milliseconds, and the increase of the peak memory."""
    begin = time.perf_counter()
    call()
    if not torch.cuda.is_available():
        return {"first call s": round(time.perf_counter() - begin, 2)}
    torch.cuda.synchronize()
    first, before = time.perf_counter() - begin, torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    result: Result = {"first call s": round(first, 2), "peak MB": round(peak / 1e6, 1), "launches ms": median(call)}
    if has_graph:
        captures = attempt(lambda: {"graph ms": median(captured(call))})
        result |= captures if captures["result"] == "ok" else {"result": f"no graph: {captures['result']}"}
    return result


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


def median(call: Callable[[], Any], seconds: float = 0.3) -> float:
    """The median milliseconds of 3 to 20 calls, which take about `seconds` if they can."""
    begin, times = time.perf_counter(), list[float]()
    while len(times) < 20 and (len(times) < 3 or time.perf_counter() - begin < seconds):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return round(sorted(times)[len(times) // 2], 4)


if __name__ == "__main__":
    main()
