"""Times the data of every task: how long its sets take to make, and how many sequences a second training gets.

    python benchmarks/tasks.py --json tasks.json

One thread, as in a trainer that draws its batches between two steps. A task whose data is not there is left out.
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastweights.catalogue import TASKS
from fastweights.tasks import Batch, MissingFile, Task

RUNS: dict[str, tuple[str, dict[str, Any], int]] = {
    "retrieval, S = 20": ("retrieval", {}, 32),
    "retrieval, S = 600": ("retrieval", {"symbols": 600}, 32),
    "retrieval, updates, S = 200": ("retrieval", {"symbols": 200, "setting": "updates"}, 32),
    "associative-retrieval": ("associative-retrieval", {}, 128),
    "code-execution, 3 variables": ("code-execution", {}, 64),
    "code-execution, 5 variables": ("code-execution", {"variables": 5}, 64),
    "list-ops, depth 10": ("list-ops", {}, 64),
    "list-ops, depth 15": ("list-ops", {"depth": 15}, 64),
    "mnist-glimpses": ("mnist-glimpses", {}, 128),
    "face-glimpses": ("face-glimpses", {}, 128),
    "associative-recall, T = 64, n = 4": ("associative-recall", {}, 64),
    "associative-recall, T = 512, n = 64": ("associative-recall", {"length": 512, "pairs": 64}, 64),
    "state-tracking, parity": ("state-tracking", {}, 128),
    "state-tracking, s5": ("state-tracking", {"group": "s5"}, 128),
}
"""Task, options and batch size: the papers' where they state one."""


def seconds_to_make(task: Task) -> float:
    """Until all fixed sets are there."""
    start = time.perf_counter()
    next(task.validation(1))
    next(task.test(1))
    return time.perf_counter() - start


def sequences_a_second(batches: Iterator[Batch], budget: float = 1.0) -> float:
    """Of a training stream, after its first batch."""
    next(batches)
    n, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < budget:
        n += len(next(batches).targets)
    return n / passed


def measure(name: str) -> dict[str, Any]:
    """One row of the table."""
    kind, options, batch_size = RUNS[name]
    task: Task = TASKS.load(kind)(**options)
    made = seconds_to_make(task)
    rate = sequences_a_second(task.train_batches(batch_size, seed=0))
    return {"task": name, "batch": batch_size, "seconds_to_make": made, "sequences_a_second": rate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print("| task | batch | fixed sets, s | training, sequences/s | a batch, ms |\n|---|---:|---:|---:|---:|")
    for name in RUNS:
        try:
            row = measure(name)
        except MissingFile as missing:
            print(f"| {name}: {missing} |")
            continue
        rows.append(row)
        rate = row["sequences_a_second"]
        milliseconds = 1e3 * row["batch"] / rate
        print(
            f"| {name} | {row['batch']} | {row['seconds_to_make']:.2f} | {rate:,.0f} | {milliseconds:.2f} |", flush=True
        )
    if options.json:
        environment = {"torch": torch.__version__, "numpy": np.__version__, "machine": platform.platform()}
        options.json.write_text(json.dumps({"environment": environment, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
