"""Times training steps of whole language models, in which the scan is one part only.

    python benchmarks/language_model.py                                     # two character models
    python benchmarks/language_model.py --paper                             # small word models of the papers
    python benchmarks/language_model.py --long                              # several lengths, and a stream
    python benchmarks/language_model.py --profile                           # the parts of a training step
    python benchmarks/language_model.py --all --output-dir docs/measurements

A training step includes everything from tokens to new weights, on random tokens. Every model has its own process.
Models alternate. Times are medians over rounds; memory is the peak resident memory of the process. A profile has one
thread and no data pipeline.
"""

import argparse
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from csv_tables import write_tables
from fastweights.experiments.experiment import Trial
from fastweights.models.language_model import LanguageModel
from fastweights.recipes.char_lm import CharLMRecipe
from fastweights.recipes.irie2021 import table_1
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.distributed.model_blocks import compile_blocks
from fastweights.training.loops.language_modelling import make_optimiser
from fastweights.training.loops.language_modelling import update as training_step
from fastweights.training.malloc import use_arena_allocator
from fastweights.training.run_folder.environment import environment
from step_parts import shares

DEMO = CharLMRecipe()
VOCABULARY = 90
WORDS = 267_735
"""Vocabulary size of WikiText-103."""
REDUCED_WORDS = 13_000
"""Words of the reduced word model. The part of WikiText-2 on which it trains has 19,061."""
BLOCKS: dict[str, Any] = {"d_model": 128, "num_layers": 4, "num_heads": 8, "conv_size": DEMO.conv_size}
PUBLISHED = {
    **{"transformer": 1.0, "linear": 2.0, "delta-net": 1.9, "delta-rnn": 1.24, "recurrent-delta-net": 1.06},
    "delta-lstm": 0.42,
}
"""Words per second relative to the Transformer, on one V100 with the authors' kernels: Irie et al. 2021, Sec. 4.1."""
TABLES = {
    **{"characters": ["demo-model", "character-model"], "paper": ["word-models"], "long": ["lengths"]},
    "profile": ["training-step-parts"],
}
"""Names of the tables by option."""
LENGTHS = (256, 1024, 4096, 16_384, 65_536)
MILLION = 1_000_000


class Candidate(NamedTuple):
    """A model, and the sizes of its training data: tokens `[batch, window]` out of `vocab_size`."""

    vocab_size: int
    options: dict[str, Any]
    batch: int
    window: int


def demo(layer: str, **more: Any) -> Candidate:
    """Model and task of `fastweights train char-lm`."""
    options = {**CharLMRecipe(layer=layer).trial().model_options}
    return Candidate(VOCABULARY, {**options, "options": {**options["options"], **more}}, DEMO.batch_size, DEMO.window)


def blocks(layer: str, window: int = 256, batch: int = 4, **more: Any) -> Candidate:
    """Character model of 4 blocks with width 128."""
    return Candidate(VOCABULARY, {"layer": layer, **BLOCKS, "options": more}, batch, window)


def paper(model: str, batch: int = 4) -> Candidate:
    """Small model of the papers, 44 million parameters, with `batch` of the 96 windows of a training step."""
    return Candidate(WORDS, table_1.trial(model, "truncated", "paper").model_options, batch, 256)


def make_update(
    candidate: Candidate, device: str = "cpu", half: bool = False, compiles: bool = False
) -> Callable[[], None]:
    """Training step of a new model, with `half` under autocast to bfloat16, with `compiles` in compiled blocks."""
    torch.manual_seed(1)
    model = LanguageModel(candidate.vocab_size, **candidate.options).to(device)
    if compiles:
        compile_blocks(model)
    # On a GPU, a CUDA graph may contain the step.
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3, fused=True, capturable=device == "cuda")
    tokens = zipf(candidate.vocab_size, (candidate.batch, candidate.window + 1)).to(device)

    def update() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=half):
            losses, _ = model(tokens[:, :-1], targets=tokens[:, 1:])
        optimiser.zero_grad()
        losses.mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimiser.step()

    return update


def zipf(vocab_size: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Random tokens whose probabilities are about 1 / n for the n-th token, as in natural text."""
    return ((torch.rand(shape, dtype=torch.float64) * torch.tensor(vocab_size).double().log()).exp() - 1).long()


def serve(pipe: Any, candidate: Candidate, threads: int) -> None:
    """Loop of a process: sends the time of a training step per request, and at the end the peak memory in bytes."""
    torch.set_num_threads(threads)
    use_arena_allocator()  # as `fastweights train` does; the time for page faults differs between processes
    update = make_update(candidate)
    while pipe.recv():
        start = time.perf_counter()
        update()
        pipe.send(time.perf_counter() - start)
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def measure(candidates: dict[str, Candidate], threads: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Median seconds per training step, and peak memory in bytes, by name."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, []
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for name, candidate in candidates.items():
        pipes[name], theirs = context.Pipe()
        processes.append(context.Process(target=serve, args=(theirs, candidate, threads)))
        processes[-1].start()
    for number in range(rounds + 2):
        for name, pipe in pipes.items():
            pipe.send(True)
            seconds = pipe.recv()
            if number >= 2:
                times[name].append(seconds)
    results = {}
    for name, pipe in pipes.items():
        pipe.send(False)
        results[name] = statistics.median(times[name]), float(pipe.recv())
    for process in processes:
        process.join()
    return results


def table(title: str, candidates: dict[str, Candidate], first: str, threads: int, rounds: int) -> str:
    """Table of times and memory, and of speeds relative to the first model."""
    results = measure(candidates, threads, rounds)
    published = "" if title != "the papers' small word models" else " the paper's |"
    lines = [f"| {title} | ms an update | tokens a second | times as fast as {first} |{published} memory, MB |"]
    lines.append("|---|---:|---:|---:|" + ("---:|" if published else "") + "---:|")
    for name, (seconds, memory) in results.items():
        one = candidates[name]
        theirs = f" {PUBLISHED.get(name, '')} |" if published else ""
        rate, ratio = one.batch * one.window / seconds, results[first][0] / seconds
        lines.append(f"| {name} | {1e3 * seconds:.1f} | {rate:,.0f} | {ratio:.2f} |{theirs} {memory / 1e6:,.0f} |")
    return "\n".join(lines)


def characters(threads: int) -> str:
    """Character models: the demo and a larger one."""
    layers: dict[str, Any] = {"delta-net": {}, "softmax-attention": {}, "lstm": {}}
    tables = [
        table("the demo", {name: demo(name) for name in layers}, "softmax-attention", threads, 15),
        table("4 blocks of 128", {name: blocks(name) for name in layers}, "softmax-attention", threads, 15),
    ]
    return "\n\n".join(tables)


def words(threads: int) -> str:
    """Small word models of the papers."""
    return table("the papers' small word models", {m: paper(m) for m in table_1.MODELS}, "transformer", threads, 9)


def long(threads: int) -> str:
    """Training with several lengths, and a stream of a million tokens."""
    torch.set_num_threads(threads)
    lines = ["| DeltaNet, 4 blocks of 128, one sequence of T | ms an update | tokens a second | memory, MB |"]
    lines.append("|---|---:|---:|---:|")
    for window in LENGTHS:
        ((seconds, memory),) = measure({"": blocks("delta-net", window, 1)}, threads, 3).values()
        lines.append(f"| {window:,} | {1e3 * seconds:.0f} | {window / seconds:,.0f} | {memory / 1e6:,.0f} |")
    return "\n".join([*lines, "", streamed(), one_token()])


def parts(threads: int) -> str:
    """Shares of the parts of a training step."""
    torch.set_num_threads(1)
    use_arena_allocator()
    words = table_1.trial("delta-net", "truncated", "paper")
    words = words._replace(training=replace(words.training, batch_size=4))
    small = table_1.trial("delta-net", "truncated", "cpu")
    models = {
        "demo": step_shares(DEMO.trial(), VOCABULARY, 30),
        "papers' small word model": step_shares(words, WORDS, 3),
        "reduced word model": step_shares(small, REDUCED_WORDS, 30),
    }
    names = sorted(set().union(*(parts for _, parts in models.values())), key=lambda n: -models["demo"][1].get(n, 0))
    lines = [f"| part | {' | '.join(models)} |", f"|---|{'---:|' * len(models)}"]
    lines.append(
        f"| milliseconds per training step | {' | '.join(f'{1e3 * seconds:.0f}' for seconds, _ in models.values())} |"
    )
    for name in names:
        lines.append(f"| {name} | {' | '.join(f'{100 * parts.get(name, 0):.1f}' for _, parts in models.values())} |")
    return "\n".join(lines)


def step_shares(trial: Trial, vocab_size: int, steps: int) -> tuple[float, dict[str, float]]:
    """Processor time of a training step of a trial on random tokens, in seconds, and the shares of its parts."""
    settings: Any = trial.training
    torch.manual_seed(1)
    bare = LanguageModel(vocab_size, **trial.model_options)
    fabric = make_fabric(settings)
    model, optimiser = fabric.setup(bare, make_optimiser(bare, settings))
    tokens = zipf(vocab_size, (settings.batch_size, settings.window + 1))
    batch = (tokens[:, :-1], tokens[:, 1:])

    def step() -> None:
        training_step(fabric, model, optimiser, batch, None, settings.max_grad_norm)

    for _ in range(2):
        step()
    times = []
    for _ in range(steps):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return statistics.median(times), shares(step, bare, steps)


@torch.inference_mode()
def streamed(piece: int = 1000) -> str:
    """Speed and memory of reading a million tokens with a carried state, a thousand tokens at a time."""
    model = LanguageModel(VOCABULARY, "delta-net", **BLOCKS).eval()
    state, times, sizes = None, [], []
    for _ in range(MILLION // piece):
        start = time.perf_counter()
        _, state = model(zipf(VOCABULARY, (1, piece)), state)
        times.append(time.perf_counter() - start)
        sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
    first, last = (statistics.median(part) for part in (times[10:30], times[-20:]))
    return (
        f"A million tokens streamed through the same model: {piece / first:,.0f} tokens a second at the beginning, "
        f"{piece / last:,.0f} at the end; {sizes[20]:,.0f} MB of the process after {20 * piece:,}, {sizes[-1]:,.0f} at "
        "the end."
    )


@torch.inference_mode()
def one_token() -> str:
    """Time of one token of the small word model of the papers, compared with the time to read its weights."""
    options = table_1.trial("delta-net", "full", "paper").model_options
    model = LanguageModel(WORDS, **options).eval()
    weights, token = [p.flatten() for p in model.blocks.parameters() if p.ndim == 2], torch.tensor([[5]])
    _, state = model(token)
    times: list[tuple[float, float]] = []
    for _ in range(300):
        start = time.perf_counter()
        _, state = model(token, state, targets=token)
        between = time.perf_counter()
        for weight in weights:
            weight.sum()
        times.append((between - start, time.perf_counter() - between))
    ours, reading = (1e3 * statistics.median(part) for part in zip(*times, strict=True))
    size = sum(w.nbytes for w in weights) / 1e6
    return (
        "One word of the papers' small DeltaNet, 16 blocks, batch 1, from carried state to the next word's probability:"
        f" {ours:.2f} ms. Of these, to read the {size:.0f} MB of its blocks' weights, and only add them up, takes "
        f"{reading:.2f}."
    )


def main() -> None:
    """Prints the chosen tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2, help="number of CPU threads (default: %(default)s)")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="folder for the tables as CSV files")
    tables = {"characters": characters, "paper": words, "long": long, "profile": parts}
    for name in [*tables][1:]:
        parser.add_argument(f"--{name}", action="store_true", help=first_sentence(tables[name]))
    parser.add_argument("--all", action="store_true", help="all tables")
    options = parser.parse_args()
    chosen = [name for name in [*tables][1:] if getattr(options, name)] or ["characters"]
    chosen = [*tables] if options.all else chosen
    texts = [f"{options.threads} threads of {environment()['processor']}, torch {torch.__version__}."]
    print(texts[0])
    for name in chosen:
        texts.append(tables[name](options.threads))
        print(f"\n{texts[-1]}", flush=True)
    if options.output_dir:
        write_tables(options.output_dir, [table for name in chosen for table in TABLES[name]], "\n\n".join(texts))


def first_sentence(part: Callable[[int], str]) -> str:
    """First sentence of the docstring of a part."""
    return (part.__doc__ or "").split(".")[0].lower()


if __name__ == "__main__":
    main()
