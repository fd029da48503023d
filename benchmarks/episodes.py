"""Times episodes of pictures: how many a second are drawn, and where the time of a training step goes.

    python benchmarks/episodes.py --into docs/how-to/tasks.md

The first table is the data alone. The second splits a step of the few-shot networks of preset cpu, 5 ways and 1 shot of
Omniglot: drawing the batch, the vision encoder (forward and backward on the same pictures), and the rest, which is the
memory, its blocks and the optimiser. All models take turns in every round, beside the same network with torch's LSTM
in place of its blocks; numbers are medians. One thread, and a batch drawn where it is used: with `workers` it is drawn
beside the step.
"""

import argparse
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fastweights.experiments.trial import build
from fastweights.registry import EXPERIMENTS, TASKS
from fastweights.tasks import MissingFile
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.loops.supervised import adam, update
from fastweights.training.run_folder.environment import environment
from page import put

DATA: dict[str, tuple[str, dict[str, Any], int]] = {
    "omniglot, 1 shot": ("omniglot", {}, 32),
    "omniglot, 1 shot, 20 pixels": ("omniglot", {"side": 20}, 32),
    "omniglot, 5 shots, delayed": ("omniglot", {"shots": 5, "labels": "delayed"}, 32),
    "mini-imagenet, 5 shots, 84 pixels": ("mini-imagenet", {"shots": 5}, 16),
    "sequential-adaptation, 20 pixels": ("sequential-adaptation", {"side": 20}, 16),
}
"""Task, options and batch size."""

NAME, COLUMN = "irie2022/table-1", "omniglot-1"
BASELINE = "lstm"
MODELS = (BASELINE, "delta-net", "srwm", "fake-srwm", "snail")


def pictures_a_second(task: Any, batch_size: int, budget: float = 2.0) -> float:
    """Of a training stream, after its first batch."""
    batches = task.train_batches(batch_size, seed=0)
    next(batches)
    n, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < budget:
        n += next(batches).inputs.labels.numel()
    return n / passed


def data_table() -> str:
    """The first table."""
    lines = [
        "| images per second | batch | in the training loop | by one thread | by two |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, (kind, options, batch_size) in DATA.items():
        try:
            rates = [pictures_a_second(TASKS.load(kind)(**options, workers=n), batch_size) for n in range(3)]
        except MissingFile as missing:
            lines.append(f"| {name}: {missing} |")
            continue
        lines.append(f"| {name} | {batch_size} | {' | '.join(f'{rate:,.0f}' for rate in rates)} |")
    return "\n".join(lines)


class Lap:
    """A model and its parts, each to be timed once a round."""

    def __init__(self, model: str) -> None:
        trial = EXPERIMENTS.load(NAME).trial(model, COLUMN, "cpu")
        self.task = TASKS.load(trial.task)(**{**trial.task_options, "workers": 0})
        self.settings = trial.training
        self.fabric = make_fabric(self.settings)
        network = build(trial, self.task)
        self.network, self.optimiser = self.fabric.setup(network, adam(network, self.settings))
        self.vision = network.vision
        self.batches = self.task.train_batches(self.settings.batch_size, seed=0)
        self.times: list[tuple[float, float, float]] = []

    def round(self) -> None:
        """Seconds for the data, the vision encoder, and the whole update."""
        drawn = timed(lambda: setattr(self, "batch", next(self.batches)))
        seen = timed(self._see)
        step = (self.fabric, self.network, self.optimiser, self.task, self.batch, self.settings.max_grad_norm)
        self.times.append((drawn, seen, timed(lambda: update(*step))))

    def _see(self) -> None:
        images = self.batch.inputs.images.flatten(0, 1).float().contiguous(memory_format=torch.channels_last)
        self.vision(images).sum().backward()

    def row(self, model: str) -> dict[str, Any]:
        """Medians, in milliseconds, and images per second."""
        data, vision, step = (1e3 * median(column) for column in zip(*islice(self.times, 3, None), strict=True))
        rate = 1e3 * self.batch.inputs.labels.numel() / (data + step)
        return {"model": model, "data": data, "vision": vision, "memory": step - vision, "pictures_a_second": rate}


def timed(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def training_table(rounds: int) -> str:
    """The second table."""
    laps = {model: Lap(model) for model in MODELS}
    for _ in range(rounds):
        for lap in laps.values():
            lap.round()
    rows = [lap.row(model) for model, lap in laps.items()]
    base = rows[0]["pictures_a_second"]
    header = ["model", "step, ms", "data, %", "vision encoder, %", "memory, %", "images/s", f"relative to {BASELINE}"]
    lines = [f"| {' | '.join(header)} |", f"|---|{'---:|' * (len(header) - 1)}"]
    for row in rows:
        whole = row["data"] + row["vision"] + row["memory"]
        shares = " | ".join(f"{100 * row[part] / whole:.1f}" for part in ("data", "vision", "memory"))
        rate = row["pictures_a_second"]
        lines.append(f"| {row['model']} | {whole:.1f} | {shares} | {rate:,.0f} | {rate / base:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the tables into this page, between its marks")
    parser.add_argument("--rounds", type=int, default=30, help="steps of every model, default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    machine = f"1 thread of {environment()['processor']}, torch {torch.__version__}."
    text = "\n\n".join([machine, data_table(), training_table(options.rounds)])
    put(options.into, "episodes", text) if options.into else print(text)


if __name__ == "__main__":
    main()
