"""Time in which the C program of a language model reads a prompt in chunks, and token by token.

    python benchmarks/prompt_reading.py [--tokens 100 1000] [--turns 10] [--output-dir docs/measurements]

The model has 6 blocks with D = 256 and random weights. Needs g++. A time is CPU time of the one thread, the smallest of
its turns, minus the time for a prompt of one character. The programs take turns.
"""

import argparse
import resource
import subprocess
from pathlib import Path
from string import ascii_letters
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import torch

from csv_tables import write_tables
from fastweights.adapters.standalone import write
from fastweights.adapters.standalone.write import BUILD
from fastweights.models import LanguageModel
from fastweights.tokenizers import Characters
from fastweights.training.run_folder.environment import environment

PRECISIONS = ("float32", "bfloat16", "int8")


def build(folder: Path, weights: str) -> dict[str, Path]:
    """The programs that read a prompt in chunks and token by token."""
    tokenizer = Characters.learn(ascii_letters)
    model = LanguageModel(len(tokenizer), "delta-net", d_model=256, num_layers=6, num_heads=8, d_ff=1024)
    write(model, SimpleNamespace(trained_tokenizer=tokenizer), folder, weights)
    main = folder / "main.c"
    programs = {}
    for name, code in (
        ("in chunks", main.read_text()),
        ("token by token", main.read_text().replace("#ifdef NETWORK_CHUNK", "#if 0")),
    ):
        main.write_text(code)
        subprocess.run(BUILD.split(), cwd=folder, check=True)
        programs[name] = (folder / "run").rename(folder / name.replace(" ", "-"))
    return programs


def cpu_milliseconds(program: Path, tokens: int) -> float:
    """CPU time of a program that reads a prompt and generates nothing."""
    prompt = (ascii_letters * tokens)[:tokens]
    command = [str(program), "--max-new-tokens", "0", "network.weights"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=program.parent, input=prompt, text=True, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def measure(programs: dict[str, Path], counts: list[int], turns: int) -> dict[tuple[str, int], float]:
    """The smallest CPU time of every program and number of tokens."""
    times = {(name, count): float("inf") for name in programs for count in (1, *counts)}
    for _ in range(turns):
        for name, count in times:
            times[name, count] = min(times[name, count], cpu_milliseconds(programs[name], count))
    return {(name, count): ms - times[name, 1] for (name, count), ms in times.items() if count > 1}


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[100, 1000], help="default: 100 and 1000")
    parser.add_argument("--turns", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--output-dir", type=Path, help="write prompt-reading.csv to this folder")
    options = parser.parse_args()
    torch.manual_seed(0)
    lines = ["| weights | way | tokens | milliseconds | microseconds per token |", "|---|---|--:|--:|--:|"]
    for weights in PRECISIONS:
        with TemporaryDirectory() as folder:
            for (name, count), ms in measure(build(Path(folder), weights), options.tokens, options.turns).items():
                lines.append(f"| {weights} | {name} | {count} | {ms:.1f} | {1e3 * ms / count:.0f} |")
                print(lines[-1], flush=True)
    if options.output_dir:
        machine = f"{environment()['processor']}, one thread, g++ -O3 -march=native. 6 blocks, D = 256."
        write_tables(options.output_dir, ["prompt-reading"], f"{machine}\n\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
