"""Time per token of the C program of a word model with one and several threads.

    python benchmarks/program_threads.py [--threads 1 2] [--turns 10] [--output-dir docs/measurements]

The model is the small word model of the papers with random weights, as in `network_step.py`. Needs g++. Each time is
the smallest of its turns, minus the time of a run with one token. The programs take turns.
"""

import argparse
import subprocess
import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import torch

from csv_tables import write_tables
from fastweights.adapters.standalone import write
from fastweights.adapters.standalone.write import BUILD
from fastweights.tokenizers import Words
from fastweights.training.run_folder.environment import environment
from network_step import VOCABULARY, word_model

PRECISIONS = ("float32", "bfloat16", "int8")
PROMPT, NEW = 641, 200


def build(folder: Path, weights: str) -> Path:
    """The program of the word model."""
    model, _ = word_model()
    words = Words(["<eos>", *(f"w{n}" for n in range(VOCABULARY - 2)), "<unk>"])
    write(model, SimpleNamespace(learnt=words), folder, weights)
    subprocess.run(BUILD.split(), cwd=folder, check=True)
    return folder / "run"


def seconds(program: Path, threads: int, prompt: int, new: int) -> float:
    """Time of a run that reads `prompt` words and generates `new` ones."""
    text = " ".join(f"w{n * n % VOCABULARY}" for n in range(prompt))
    command = [
        program,
        "--threads",
        str(threads),
        "--temperature",
        "0",
        "--max-new-tokens",
        str(new),
        "network.weights",
    ]
    start = time.perf_counter()
    subprocess.run(command, cwd=program.parent, input=text, text=True, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def measure(program: Path, threads: list[int], turns: int) -> dict[tuple[str, int], float]:
    """Microseconds per token of reading and of generation, by number of threads."""
    kinds = {"start": (1, 0), "reading a prompt": (PROMPT, 0), "generation": (1, NEW)}
    times = dict.fromkeys(product(kinds, threads), float("inf"))
    for _ in range(turns):
        for kind, count in times:
            times[kind, count] = min(times[kind, count], seconds(program, count, *kinds[kind]))
    return {
        (kind, count): 1e6 * (seconds - times["start", count]) / (sum(kinds[kind]) - 1)
        for (kind, count), seconds in times.items()
        if kind != "start"
    }


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="default: 1 and 2")
    parser.add_argument("--turns", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--output-dir", type=Path, help="write program-threads.csv to this folder")
    options = parser.parse_args()
    torch.manual_seed(0)
    lines = ["| weights | work | threads | microseconds per token |", "|---|---|--:|--:|"]
    for weights in PRECISIONS:
        with TemporaryDirectory() as folder:
            for (kind, count), us in measure(build(Path(folder), weights), options.threads, options.turns).items():
                lines.append(f"| {weights} | {kind} | {count} | {us:.0f} |")
                print(lines[-1], flush=True)
    if options.output_dir:
        machine = f"{environment()['processor']}, g++ -O3 -march=native. Small word model, {VOCABULARY:,} words."
        write_tables(options.output_dir, ["program-threads"], f"{machine}\n\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
