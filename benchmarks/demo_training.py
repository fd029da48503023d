"""The choice of the training of `fastweights train char-lm`: settings by validation loss and by processor time.

    python benchmarks/demo_training.py                              # trains what is missing, prints the table
    python benchmarks/demo_training.py --into docs/results/char-lm.md

The processor time of a training step is measured on one thread, for all settings in turns. AdamW and the default train
with several seeds, and the held-out tenth is looked at for them only. What is finished is not run again.
"""

import argparse
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from demo import ADAM_W, spread, time_updates, train
from fastweights.recipes.char_lm import CharLMRecipe
from page import put

SHORT = {"steps": 640, "warmup_steps": 30}
TRAININGS: dict[str, dict[str, Any]] = {
    "AdamW": {**ADAM_W, "steps": 1240},
    "Muon (default)": {},
    "Muon, 640 steps": SHORT,
    "Muon, 640 steps, bf16-mixed": {**SHORT, "precision": "bf16-mixed"},
    "Muon, dropout 0.1, decay 0.5": {"dropout": 0.1, "weight_decay": 0.5},
}
REPEATED = [*TRAININGS][:2]
"""Settings with several seeds."""


def row(folder: Path, label: str, share: float, seeds: int) -> str:
    """The row of a setting; `share` is its processor time divided by that of AdamW."""
    flags = TRAININGS[label]
    repeated = label in REPEATED
    results = [train(folder, label, flags, seed) for seed in range(1, (seeds if repeated else 1) + 1)]
    validation = fmean(result.validation["bits"] for result in results)
    numbers = [f"{CharLMRecipe(**flags).steps:,}", f"{share:.2f}", f"{validation:.3f}"]
    return f"| {label} | {' | '.join(numbers)} | {spread(results) if repeated else ''} |"


def table(folder: Path, seeds: int) -> str:
    """All settings, with the processor time of all their steps as a share of that of AdamW."""
    torch.set_num_threads(1)
    steps = time_updates([*TRAININGS.values()], clock=time.process_time)
    seconds = [step * CharLMRecipe(**flags).steps for step, flags in zip(steps, TRAININGS.values(), strict=True)]
    lines = ["| training | training steps | processor time | validation bits | held-out bits |"]
    lines.append("|---|---:|---:|---:|---:|")
    for label, time_of_all in zip(TRAININGS, seconds, strict=True):
        lines.append(row(folder, label, time_of_all / seconds[0], seeds))
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/demo"), help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=3, help="of AdamW and of the default, default: %(default)s")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table into this page, between its marks")
    options = parser.parse_args()
    text = table(options.folder, options.seeds)
    if options.into:
        put(options.into, "demo_training", text)


if __name__ == "__main__":
    main()
