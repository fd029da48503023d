"""Time per token of the small word model of the papers as C, with one and several threads.

    python benchmarks/program_threads.py [--threads 1 2] [--steps 500] [--output-dir docs/measurements]

The model has random weights, as in `network_step.py`. Needs g++. Each time is that of the fastest of all calls of
`network_step` or `network_chunk`, so that other work on the machine has little influence.
"""

import argparse
import subprocess
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
MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "network.h"

static float logits[NETWORK_LOGITS];
static double microseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Usage: ./run WEIGHTS THREADS STEPS. Prints the least time per token of a step and of a chunk. */
int main(int count, char** texts) {
    network n;
    int64_t tokens[NETWORK_CHUNK] = {0};
    double best[2] = {1e9, 1e9};
    if (count < 4 || network_open(&n, texts[1]) || network_threads(&n, atoi(texts[2]))) return 1;
    for (int k = 0; k < 2 * atoi(texts[3]); ++k) {
        const network_inputs x = {tokens};
        const network_chunk_inputs chunk = {tokens};
        const network_outputs y = {logits};
        const network_chunk_outputs last = {logits};
        const double start = microseconds();
        if (k % 2 ? network_chunk(&n, &chunk, &last) : network_step(&n, &x, &y)) return 1;
        const double time = (microseconds() - start) / (k % 2 ? NETWORK_CHUNK : 1);
        if (time < best[k % 2]) best[k % 2] = time;
    }
    network_close(&n);
    printf("%f %f", best[0], best[1]);
    return 0;
}
"""


def build(folder: Path, weights: str) -> None:
    """Builds the word model and the main function above."""
    model, _ = word_model()
    words = Words(["<eos>", *(f"w{n}" for n in range(VOCABULARY - 2)), "<unk>"])
    write(model, SimpleNamespace(trained_tokenizer=words), folder, weights)
    (folder / "main.c").write_text(MAIN)
    subprocess.run(BUILD.split(), cwd=folder, check=True)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="default: 1 and 2")
    parser.add_argument("--steps", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--output-dir", type=Path, help="write program-threads.csv to this folder")
    options = parser.parse_args()
    torch.manual_seed(0)
    lines = ["| weights | threads | step, us | prompt, us per token |", "|---|--:|--:|--:|"]
    for weights in PRECISIONS:
        with TemporaryDirectory() as name:
            build(Path(name), weights)
            for threads in options.threads:
                command = ["./run", "network.weights", str(threads), str(options.steps)]
                done = subprocess.run(command, cwd=name, capture_output=True, text=True, check=True)
                lines.append("| {} | {} | {:.0f} | {:.0f} |".format(weights, threads, *map(float, done.stdout.split())))
                print(lines[-1], flush=True)
    if options.output_dir:
        machine = f"{environment()['processor']}, g++ -O3 -march=native. Small word model, {VOCABULARY:,} words."
        write_tables(options.output_dir, ["program-threads"], f"{machine}\n\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
