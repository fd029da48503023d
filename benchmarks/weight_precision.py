"""Perplexity of a trained language model whose compiled step stores matrices in float32, bfloat16 and int8.

    python benchmarks/weight_precision.py [RUN] [--tokens 20000] [--output-dir docs/measurements]

The model reads the beginning of its validation text one token at a time. Its state continues over all tokens.
"""

import argparse
from itertools import pairwise
from math import exp
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import fastweights
from csv_tables import write_tables
from fastweights.models import LanguageModel
from fastweights.steps import Precision, Recurrence, compiled_after

OZ = Path(__file__).parents[1] / "docs" / "playground" / "oz" / "delta-net"


def loss(model: LanguageModel, tokens: Tensor, weights: str) -> float:
    """Mean loss in nats per token."""
    state = model.initial_state(1)
    explanation = fastweights.compile_step(model, tokens[:1, None], state, weights=weights)
    if not explanation.is_compiled:
        raise fastweights.InputError(str(explanation))
    steps, total = Recurrence(model, state), 0.0
    for token, target in pairwise(tokens):
        total += cross_entropy(steps(token[None, None])[0], target[None]).item()
    return total / (len(tokens) - 1)


@torch.inference_mode()
def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "run", nargs="?", type=Path, default=OZ, help="run folder of a language model (default: docs/.../oz/delta-net)"
    )
    parser.add_argument("--tokens", type=int, default=20_000, help="number of tokens (default: %(default)s)")
    parser.add_argument("--output-dir", type=Path, help="folder for weight-precision.csv")
    options = parser.parse_args()
    model, task = fastweights.load(options.run)
    if not isinstance(model, LanguageModel):
        parser.error(f"run must be of a language model, got {type(model).__name__}")
    tokens = task.validation[: options.tokens]
    lines = [
        f"Validation text, {len(tokens):,} tokens.",
        "",
        "| weights | loss in nats | perplexity |",
        "|---|--:|--:|",
    ]
    with compiled_after(0):
        for weights in get_args(Precision):
            nats = loss(model, tokens, weights)
            lines.append(f"| {weights} | {nats:.5f} | {exp(nats):.4f} |")
            print(lines[-1], flush=True)
    if options.output_dir:
        write_tables(options.output_dir, ["weight-precision"], "\n".join(lines))


if __name__ == "__main__":
    main()
