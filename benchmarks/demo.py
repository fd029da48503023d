"""Model selection for `fastweights train char-lm`: validation losses of candidates with equal training time.

    python benchmarks/demo.py --folder runs/demo               # trains missing runs, prints the table
    python benchmarks/demo.py --into docs/results/char-lm.md   # also writes the table into a page

The script first times a training step of every candidate in alternation, on all cores. Each candidate then trains with
AdamW for the time of 1,500 steps of the first one. The rank is the loss on the validation set, 5 % of the book. The
test set, a tenth of the book, is used with more seeds for three candidates only: the best memory of this library, the
best stack with one, and the best other model. Finished runs are not repeated.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fastweights.experiments.run_trial import run_trial
from fastweights.experiments.trial import build, make_task
from fastweights.recipes.char_lm import CharLMRecipe
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.loops.language_modelling import make_optimiser, update
from fastweights.training.run_folder.result import Result
from fastweights.training.run_folder.run import Run
from page import put

UPDATES = 1500
"""Training steps of the first candidate."""
WIDEST = {"d_model": 256, "num_layers": 1, "num_heads": 8, "d_ff": 512}


def two(width: int, num_heads: int, **options: Any) -> dict[str, Any]:
    """Sizes of two blocks with narrow feed-forward networks, since most of the time is spent in layers with a state."""
    return {"d_model": width, "num_layers": 2, "num_heads": num_heads, "d_ff": width, **options}


MEMORIES: dict[str, dict[str, Any]] = {
    "DeltaNet, 3 blocks of 96, 6 heads": {"layer": "delta-net"},
    "gated DeltaNet, 3 blocks of 96, 3 heads": {"layer": "gated-delta", "num_heads": 3},
    "gated DeltaNet, 1 block of 256": {"layer": "gated-delta", **WIDEST},
    "gated DeltaNet, 1 block of 256, rate 2e-3": {"layer": "gated-delta", "learning_rate": 2e-3, **WIDEST},
    "gated DeltaNet, 1 block of 256, rate 8e-3": {"layer": "gated-delta", "learning_rate": 8e-3, **WIDEST},
    "gated DeltaNet, 1 block of 384": {"layer": "gated-delta", **WIDEST, "d_model": 384, "num_heads": 12},
    "KDA, 1 block of 256": {"layer": "kda", **WIDEST},
    "RWKV-7, 1 block of 256": {"layer": "rwkv7", **WIDEST},
    "Delta RNN, 1 block of 256": {"layer": "delta-rnn", **WIDEST},
    "M2RNN, 1 block of 256": {"layer": "m2rnn", **WIDEST},
    "SRWM, 1 block of 256": {"layer": "srwm", **WIDEST},
    "gated DeltaNet, 2 blocks of 192": {"layer": "gated-delta", **two(192, 6)},
}
STACKS: dict[str, dict[str, Any]] = {
    "sLSTM and gated DeltaNet, 192": {"layer": "slstm,gated-delta", **two(192, 6)},
    "LSTM and gated DeltaNet, 160": {"layer": "lstm,gated-delta", **two(160, 5)},
    "LSTM and gated DeltaNet, 192": {"layer": "lstm,gated-delta", **two(192, 6)},
    "LSTM and gated DeltaNet, 224": {"layer": "lstm,gated-delta", **two(224, 7)},
    "gated DeltaNet and LSTM, 192": {"layer": "gated-delta,lstm", **two(192, 6)},
    "LSTM and gated DeltaNet, 192, rate 2e-3": {"layer": "lstm,gated-delta", **two(192, 6, learning_rate=2e-3)},
    "LSTM and gated DeltaNet, 192, rate 8e-3": {"layer": "lstm,gated-delta", **two(192, 6, learning_rate=8e-3)},
}
OTHERS: dict[str, dict[str, Any]] = {
    "LSTM, 3 blocks of 96": {"layer": "lstm"},
    "LSTM, 2 blocks of 160": {"layer": "lstm", **two(160, 5)},
    "LSTM, 2 blocks of 192": {"layer": "lstm", **two(192, 6)},
    "LSTM, 2 blocks of 192, rate 2e-3": {"layer": "lstm", **two(192, 6, learning_rate=2e-3)},
    "LSTM, 2 blocks of 192, rate 8e-3": {"layer": "lstm", **two(192, 6, learning_rate=8e-3)},
    "LSTM, 1 block of 256": {"layer": "lstm", **WIDEST},
    "LSTM, 1 block of 256, rate 2e-3": {"layer": "lstm", "learning_rate": 2e-3, **WIDEST},
    "LSTM, 1 block of 256, rate 8e-3": {"layer": "lstm", "learning_rate": 8e-3, **WIDEST},
    "LSTM, 1 block of 320": {"layer": "lstm", **WIDEST, "d_model": 320},
    "softmax attention, 3 blocks of 96": {"layer": "softmax-attention"},
}
CANDIDATES = [
    (kind, label, flags)
    for kind, candidates in {"memory": MEMORIES, "stack": STACKS, "other": OTHERS}.items()
    for label, flags in candidates.items()
]


ADAM_W: dict[str, Any] = {"optimizer": "adamw", "weight_decay": 0.01, "dropout": 0.1}
"""Settings of the comparison."""


def make_update(flags: dict[str, Any]) -> Callable[[], Any]:
    """Function that runs one training step of a candidate on the first batch."""
    trial = CharLMRecipe(**flags).trial()
    settings: Any = trial.training
    task: Any = make_task(trial.task, trial.task_options)
    batch, fabric = task.windows(settings.batch_size, settings.window)[0], make_fabric(settings)
    bare: Any = build(trial, task)
    model, optimiser = fabric.setup(bare, make_optimiser(bare, settings))
    before = bare.initial_state(settings.batch_size)
    return lambda: update(fabric, model, optimiser, batch, before, settings.max_grad_norm)


def time_updates(
    candidates: list[dict[str, Any]], rounds: int = 24, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Seconds per training step of every candidate: the minimum over several rounds."""
    updates = [make_update(flags) for flags in candidates]
    least = [float("inf")] * len(updates)
    for _ in range(rounds):
        for n, one in enumerate(updates):
            start = clock()
            one()
            least[n] = min(least[n], clock() - start)
    return least


def steps_of(folder: Path) -> list[int]:
    """Training steps of every candidate. Each time is measured once, together with that of the first candidate."""
    file = folder / "steps.json"
    known: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    new = [(label, flags) for _, label, flags in CANDIDATES if label not in known]
    if new:
        first, *times = time_updates([{**ADAM_W, **flags} for flags in (CANDIDATES[0][2], *(f for _, f in new))])
        known |= {label: round(UPDATES * first / t, -1) for (label, _), t in zip(new, times, strict=True)}
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(known, indent=1))
    return [int(known[label]) for _, label, _ in CANDIDATES]


def train_model(folder: Path, n: int, steps: int, seed: int) -> Result:
    """The result of a model with AdamW."""
    _, label, flags = CANDIDATES[n]
    return train(folder, label, {**ADAM_W, **flags, "steps": steps}, seed)


def train(folder: Path, label: str, flags: dict[str, Any], seed: int) -> Result:
    """The result of a run, which is trained unless it is finished."""
    run, flags = Run(folder / f"{label}, seed {seed}"), {**flags, "seed": seed, "sample": 0}
    if not run.exists() or run.result() is None:
        trial = CharLMRecipe(**flags).trial()
        run_trial(run, trial, "char-lm", flags, resume=run.exists())
    result = run.result()
    assert result is not None
    return result


def table(folder: Path, steps: list[int], seeds: int) -> str:
    """Table of candidates, best first. The best of each kind has all seeds."""
    ranking = []
    for n, (kind, label, _) in enumerate(CANDIDATES):
        result = train_model(folder, n, steps[n], 1)
        ranking.append((result.validation["bits"], n, kind, result.parameters))
        print(f"{label}: validation {result.validation['bits']:.3f}", flush=True)
    lines = [
        "| candidate | parameters | training steps | validation bits | held-out bits |",
        "|---|---:|---:|---:|---:|",
    ]
    shown: set[str] = set()
    for validation, n, kind, parameters in sorted(ranking):
        held_out = (
            "" if kind in shown else spread([train_model(folder, n, steps[n], seed) for seed in range(1, seeds + 1)])
        )
        shown.add(kind)
        lines.append(f"| {CANDIDATES[n][1]} | {parameters:,} | {steps[n]:,} | {validation:.3f} | {held_out} |")
    return "\n".join(lines)


def spread(results: list[Result]) -> str:
    """Mean and standard deviation of held-out bits."""
    bits = [result.test["bits"] for result in results]
    return f"{fmean(bits):.3f}" + (f" ± {stdev(bits):.3f}" if len(bits) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/demo"), help="folder of the runs (default: %(default)s)"
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="seeds of the best candidate of each kind (default: %(default)s)"
    )
    parser.add_argument("--into", type=Path, metavar="PAGE", help="page that gets the table between its marks")
    options = parser.parse_args()
    text = table(options.folder, steps_of(options.folder), options.seeds)
    print(text)
    if options.into:
        put(options.into, "demo", text)


if __name__ == "__main__":
    main()
