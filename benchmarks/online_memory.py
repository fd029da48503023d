"""Time of a training step of the online memory: a segment and a snippet of 10 symbols each, gradients and Adam.

    python benchmarks/online_memory.py                  # one core; the kernel is built first
    python benchmarks/online_memory.py --symbols 20000  # more training steps
    python benchmarks/online_memory.py --into docs/concepts/online-memory.md

"compiled" is the backend of `fastweights train online-memory`, compared with the same steps as calls of PyTorch. "In
kernels" is the time inside the compiled scans. Times are CPU time, which depends little on other programs.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from fastweights.compiler.targets.cpp.kernel import CppKernel
from fastweights.models.neuron_network import NeuronNetwork
from fastweights.recipes.online_memory import OF_NEURONS, OnlineMemoryRecipe
from fastweights.tasks.letters import Letters
from fastweights.training.loops.online_memory import SegmentReader, adam, update
from fastweights.training.run_folder.environment import environment
from page import put

MILLION = 1_000_000


def seconds(backend: str, updates: int, delay: int) -> tuple[float, float]:
    """Seconds per training step, in total and inside kernels."""
    settings = OnlineMemoryRecipe(delay=delay)
    torch.manual_seed(settings.seed)
    model = NeuronNetwork(27, backend=backend, **{name: getattr(settings, name) for name in OF_NEURONS})
    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimiser = fabric.setup(model, adam(model, settings))
    reader, inside = SegmentReader(Letters().training, settings, 1), Inside()
    state = start = model.initial_state(1)
    for step in range(-1, updates):
        if step == 0:
            inside.total, began = 0.0, time.process_time()
        _, state = update(fabric, model, optimiser, reader.pair(step + 1, 0), state, start, settings)
    total = time.process_time() - began
    inside.end()
    return total / updates, inside.total / updates


class Inside:
    """Measures the seconds inside kernels."""

    def __init__(self) -> None:
        self.total, self.own = 0.0, {name: getattr(CppKernel, name) for name in ("forward", "backward")}
        for name, method in self.own.items():
            setattr(CppKernel, name, self.timed(method))

    def timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method that adds its time to the total."""

        def run(*arguments: Any) -> Any:
            began = time.process_time()
            result = method(*arguments)
            self.total += time.process_time() - began
            return result

        return run

    def end(self) -> None:
        """Stops the measurement."""
        for name, method in self.own.items():
            setattr(CppKernel, name, method)


def row(name: str, total: float, kernels: float) -> str:
    """Row of the table."""
    million = total / OnlineMemoryRecipe.segment * MILLION / 60
    inside = f"{1e3 * kernels:.2f}" if kernels else ""
    per_symbol = 1e3 * total / OnlineMemoryRecipe.segment
    return f"| {name} | {1e3 * total:.2f} | {inside} | {per_symbol:.3f} | {million:.1f} min |"


def main() -> None:
    """Prints the table, or writes it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--symbols", type=int, default=5_000, help="number of symbols (default: %(default)s)")
    parser.add_argument("--delay", type=int, default=80, help="delay of the recipe in symbols (default: %(default)s)")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="page that gets the table between its marks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    updates = options.symbols // OnlineMemoryRecipe.segment
    lines = [
        f"On one core of {environment()['processor']}, in processor time:",
        "",
        "| | ms per training step | ms of these in kernels | ms per symbol | a million symbols |",
        "|---|---|---|---|---|",
        row("compiled", *seconds("compiled", updates, options.delay)),
        row("the same steps as calls of PyTorch", *seconds("reference", max(updates // 50, 2), options.delay)),
    ]
    text = "\n".join(lines)
    put(options.into, "online_memory", text) if options.into else print(text)


if __name__ == "__main__":
    main()
