"""Times episodes of images: images per second of the data pipeline, and the parts of a training step.

    python benchmarks/episodes.py --into docs/how-to/tasks.md

The first table has the data pipeline alone. The second table divides a training step of the few-shot networks of
preset cpu (Omniglot, 5 ways, 1 shot) into the data, the vision encoder (forward and backward pass), and the rest:
memory, blocks and optimiser. The baseline has an LSTM in place of the blocks. All models alternate in every round;
numbers are medians. The second table uses one thread, and loads data in the training loop.
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


def images_per_second(task: Any, batch_size: int, budget: float = 2.0) -> float:
    """Images per second of training batches, after the first one."""
    batches = task.train_batches(batch_size, seed=0)
    next(batches)
    n, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < budget:
        n += next(batches).inputs.labels.numel()
    return n / elapsed


def data_table() -> str:
    """Table of the data pipeline."""
    lines = [
        "| images per second | batch | in the training loop | by one thread | by two |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, (kind, options, batch_size) in DATA.items():
        try:
            rates = [images_per_second(TASKS.load(kind)(**options, workers=n), batch_size) for n in range(3)]
        except MissingFile as missing:
            lines.append(f"| {name}: {missing} |")
            continue
        lines.append(f"| {name} | {batch_size} | {' | '.join(f'{rate:,.0f}' for rate in rates)} |")
    return "\n".join(lines)


class Lap:
    """A model whose parts are timed once per round."""

    def __init__(self, model: str) -> None:
        trial = EXPERIMENTS.load(NAME).trial(model, COLUMN, "cpu")
        self.task = TASKS.load(trial.task)(**{**trial.task_options, "workers": 0})
        self.settings = trial.training
        self.fabric = make_fabric(self.settings)
        network: Any = build(trial, self.task)
        self.network, self.optimiser = self.fabric.setup(network, adam(network, self.settings))
        self.vision = network.vision
        self.batches = self.task.train_batches(self.settings.batch_size, seed=0)
        self.times: list[tuple[float, float, float]] = []
        self.batch: Any = None

    def round(self) -> None:
        """Records the seconds of the data, of the vision encoder, and of the whole training step."""
        data = timed(lambda: setattr(self, "batch", next(self.batches)))
        vision = timed(self._encode)
        step = (self.fabric, self.network, self.optimiser, self.task, self.batch, self.settings.max_grad_norm)
        self.times.append((data, vision, timed(lambda: update(*step))))

    def _encode(self) -> None:
        images = self.batch.inputs.images.flatten(0, 1).float().contiguous(memory_format=torch.channels_last)
        self.vision(images).sum().backward()

    def row(self, model: str) -> dict[str, Any]:
        """Medians, in milliseconds, and images per second."""
        data, vision, step = (1e3 * median(column) for column in zip(*islice(self.times, 3, None), strict=True))
        rate = 1e3 * self.batch.inputs.labels.numel() / (data + step)
        return {"model": model, "data": data, "vision": vision, "memory": step - vision, "images_per_second": rate}


def timed(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def training_table(rounds: int) -> str:
    """Table of training steps."""
    laps = {model: Lap(model) for model in MODELS}
    for _ in range(rounds):
        for lap in laps.values():
            lap.round()
    rows = [lap.row(model) for model, lap in laps.items()]
    base = rows[0]["images_per_second"]
    header = ["model", "step, ms", "data, %", "vision encoder, %", "memory, %", "images/s", f"relative to {BASELINE}"]
    lines = [f"| {' | '.join(header)} |", f"|---|{'---:|' * (len(header) - 1)}"]
    for row in rows:
        whole = row["data"] + row["vision"] + row["memory"]
        shares = " | ".join(f"{100 * row[part] / whole:.1f}" for part in ("data", "vision", "memory"))
        rate = row["images_per_second"]
        lines.append(f"| {row['model']} | {whole:.1f} | {shares} | {rate:,.0f} | {rate / base:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, metavar="PAGE", help="page that gets the tables between its marks")
    parser.add_argument("--rounds", type=int, default=30, help="training steps per model (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    machine = f"1 thread of {environment()['processor']}, torch {torch.__version__}."
    text = "\n\n".join([machine, data_table(), training_table(options.rounds)])
    put(options.into, "episodes", text) if options.into else print(text)


if __name__ == "__main__":
    main()
