"""Times the data of every task: seconds to create its fixed sets, and training sequences per second.

    python benchmarks/tasks.py --json tasks.json

The second table times training steps of the models of every experiment, in the first and the last column of preset cpu,
and the share of the data (medians). The script uses one thread, which also draws the batches. Tasks without data on
this machine are left out.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fastweights.experiments.trial import build
from fastweights.registry import EXPERIMENTS, TASKS
from fastweights.tasks import Batch, Labelled, MissingFile
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.loops.supervised import adam, update
from fastweights.training.run_folder.environment import environment
from fastweights.training.settings.supervised import Supervised

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
"""Task, options and batch size, which is that of the paper if the paper states one."""


def seconds_to_make(task: Labelled) -> float:
    """Seconds to create all fixed sets."""
    start = time.perf_counter()
    next(task.validation(1))
    next(task.test(1))
    return time.perf_counter() - start


def sequences_per_second(batches: Iterator[Batch], budget: float = 1.0) -> float:
    """Training sequences per second, after the first batch."""
    next(batches)
    n, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < budget:
        n += len(next(batches).targets)
    return n / elapsed


def measure(name: str) -> dict[str, Any]:
    """Row of the first table."""
    kind, options, batch_size = RUNS[name]
    task: Labelled = TASKS.load(kind)(**options)
    seconds = seconds_to_make(task)
    rate = sequences_per_second(task.train_batches(batch_size, seed=0))
    return {"task": name, "batch": batch_size, "seconds_to_make": seconds, "sequences_per_second": rate}


def measure_training(name: str, model: str, column: str, warm: int = 5, budget: float = 2.0) -> dict[str, Any]:
    """Row of the second table."""
    trial = EXPERIMENTS.load(name).trial(model, column, "cpu")
    settings, task = trial.training, TASKS.load(trial.task)(**trial.task_options)
    fabric, network = make_fabric(settings), build(trial, task)
    network, optimiser = fabric.setup(network, adam(network, settings))
    batches = task.train_batches(settings.batch_size, settings.seed)
    laps: list[tuple[float, float]] = []
    while len(laps) < 2 * warm or sum(data + step for data, step in laps) < budget:
        start = time.perf_counter()
        batch = next(batches)
        drawn = time.perf_counter()
        update(fabric, network, optimiser, task, batch, settings.max_grad_norm)
        laps.append((drawn - start, time.perf_counter() - drawn))
    data, step = map(median, zip(*laps[warm:], strict=True))
    rate = settings.batch_size / (data + step)
    share = data / (data + step)
    names = {"experiment": name, "column": column, "model": model}
    return {**names, "seconds": data + step, "data": share, "sequences_per_second": rate}


def is_supervised(name: str) -> bool:
    """Whether an experiment has labelled sequences."""
    experiment = EXPERIMENTS.load(name)
    return isinstance(experiment.trial(*experiment.preset("cpu").places[0], "cpu").training, Supervised)


def print_data() -> list[dict[str, Any]]:
    """Prints the table of data."""
    rows = []
    print("| task | batch | fixed sets, s | training, sequences/s | a batch, ms |\n|---|---:|---:|---:|---:|")
    for name in RUNS:
        try:
            row = measure(name)
        except MissingFile as missing:
            print(f"| {name}: {missing} |")
            continue
        rows.append(row)
        rate = row["sequences_per_second"]
        milliseconds = 1e3 * row["batch"] / rate
        print(
            f"| {name} | {row['batch']} | {row['seconds_to_make']:.2f} | {rate:,.0f} | {milliseconds:.2f} |", flush=True
        )
    return rows


def print_training() -> list[dict[str, Any]]:
    """Prints the table of training."""
    rows = []
    header = ["experiment", "column", "model", "a step, ms", "of it data, %", "sequences/s"]
    print(f"\n| {' | '.join(header)} |\n|---|---|---|---:|---:|---:|")
    presets = {name: EXPERIMENTS.load(name).preset("cpu") for name in EXPERIMENTS.names() if is_supervised(name)}
    ends = [(name, column, p) for name, p in presets.items() for column in dict.fromkeys((p.columns[0], p.columns[-1]))]
    for name, column, preset in ends:
        for model in (m for m, c in preset.places if c == column):
            try:
                row = measure_training(name, model, column)
            except MissingFile as missing:
                print(f"| {name}: {missing} |")
                continue
            rows.append(row)
            numbers = f"{1e3 * row['seconds']:.1f} | {100 * row['data']:.1f} | {row['sequences_per_second']:,.0f}"
            print(f"| {name} | {column} | {model} | {numbers} |", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data, training = print_data(), print_training()
    if options.json:
        content = {"environment": environment(), "data": data, "training": training}
        options.json.write_text(json.dumps(content, indent=2))


if __name__ == "__main__":
    main()
