"""The memories that the playground compares, and the command that trains a small language model for each.

    python docs/playground_memories.py [LAYER ...]

All models have the same width, depth, data and number of training steps. Training takes about three minutes per model
on two busy cores. The command writes the settings, the weights and the result of each run into `playground/oz/LAYER`.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights import Cell

RUNS = Path(__file__).parent / "playground" / "oz"
FILES = ("best.safetensors", "config.json", "metrics.jsonl", "result.json")
"""Files of a run folder that are in the repository."""
TRAIN = (
    *(sys.executable, "-m", "fastweights", "train", "char-lm", "--seed", "1", "--steps", "1600"),
    *("--d-model", "64", "--num-heads", "2", "--d-ff", "192", "--dropout", "0"),
)

Written = Callable[[str, Cell, Any, Any, tuple[Any, ...]], Tensor]
"""Returns what a step adds to a matrix of the state, from its name, the cell, the state, the inputs and the params."""


def into_empty_memory(matrix: str, cell: Cell, state: Any, x: Any, params: tuple[Any, ...]) -> Tensor:
    """The write of a step into an empty memory: the written part of a rule that is affine in the memory."""
    empty = state._replace(**{matrix: torch.zeros_like(getattr(state, matrix))})
    written: Tensor = getattr(cell.step(empty, x, *params)[0], matrix)
    return written


def by_srwm(matrix: str, cell: Cell, state: Any, x: Any, params: tuple[Any, ...]) -> Tensor:
    """beta A q k^T for a matrix A of the SRWM: its values come from the memory itself."""
    A, W_q, W_k = (getattr(params[0], name) + getattr(state, name) for name in (matrix, "W_q", "W_k"))
    q, k = (W_q @ x.x).softmax(-1), (W_k @ x.x).softmax(-1)
    rates: Any = cell.rates
    rate: Tensor = rates(state, x, *params)[matrix.replace("W_", "beta_")]
    return rate * torch.outer(A @ q, k)


class Memory(NamedTuple):
    """A memory of the page.

    Args:
        layer: The name of the layer, and of the folder of its run.
        title: The name on the page.
        note: A sentence about the memory for the page.
        matrix: The matrix of the state that the page shows.
        written: Returns the part of the change of this matrix that is written. The rest is erased.
    """

    layer: str
    title: str
    note: str
    matrix: str = "W"
    written: Written = into_empty_memory

    @property
    def run(self) -> Path:
        """The run folder."""
        return RUNS / self.layer


MEMORIES = (
    Memory("linear-attention", "Linear attention", "It never erases, so that its memory grows."),
    Memory("delta-net", "DeltaNet", "It erases the value that the key retrieves, and writes the new one."),
    Memory(
        "recurrent-delta-net", "Recurrent DeltaNet", "The delta rule. Keys and values also depend on the last read."
    ),
    Memory("srwm", "SRWM", "It computes its own keys, values and rates. The pictures show W_y.", "W_y", by_srwm),
)
"""To add a memory to the page, add it here and train its model."""


def train(memory: Memory) -> None:
    """Trains the model of a memory, and copies its run into the repository."""
    with TemporaryDirectory() as folder:
        run = Path(folder, "run")
        subprocess.run([*TRAIN, "--layer", memory.layer, "--run", str(run)], check=True)
        memory.run.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copy(run / name, memory.run / name)


def main() -> None:
    layers = [memory.layer for memory in MEMORIES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layers", nargs="*", metavar="LAYER", help=f"layers to train (default: {' '.join(layers)})")
    chosen = parser.parse_args().layers or layers
    if unknown := sorted(set(chosen) - set(layers)):
        parser.error(f"layers must be memories of the page, got {', '.join(unknown)}. Add them to MEMORIES.")
    for memory in MEMORIES:
        if memory.layer in chosen:
            train(memory)


if __name__ == "__main__":
    main()
