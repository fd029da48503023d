"""Times the training of language models end to end: what is left of a faster scan once everything else is paid for.

    python benchmarks/language_model.py                                     # the demo and another character model
    python benchmarks/language_model.py --paper                             # the small word models of the papers
    python benchmarks/language_model.py --long                              # over T, and a million tokens streamed
    python benchmarks/language_model.py --profile                           # the parts of a training step
    python benchmarks/language_model.py --all --output-dir docs/measurements

One training step, from tokens to new weights, on random tokens. Models take turns, each in a process of its own, whose
largest resident memory is told beside the time; medians over turns. A profile has one thread, and does not include the
data, whose batches are slices of a tensor.
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
from fastweights.training.loops.streamed import make_optimiser
from fastweights.training.loops.streamed import update as training_step
from fastweights.training.malloc import use_arena_allocator
from fastweights.training.run_folder.environment import environment
from step_parts import shares

DEMO = CharLMRecipe()
VOCABULARY = 90
WORDS = 267_735
"""Of WikiText-103."""
REDUCED_WORDS = 13_000
"""About those of the part of WikiText-2 on which the reduced word models train."""
BLOCKS: dict[str, Any] = {"d_model": 128, "num_layers": 4, "num_heads": 8, "conv_size": DEMO.conv_size}
PUBLISHED = {
    **{"transformer": 1.0, "linear": 2.0, "delta-net": 1.9, "delta-rnn": 1.24, "recurrent-delta-net": 1.06},
    "delta-lstm": 0.42,
}
"""Words a second beside the Transformer's, on one V100 with the authors' kernels: Irie et al. 2021, Sec. 4.1."""
TABLES = {
    **{"characters": ["demo-model", "character-model"], "paper": ["word-models"], "long": ["lengths"]},
    "profile": ["training-step-parts"],
}
"""Names of the tables by option."""
LENGTHS = (256, 1024, 4096, 16_384, 65_536)
MILLION = 1_000_000


class Candidate(NamedTuple):
    """A model, and what it is trained on: tokens `[batch, window]` out of `vocab_size`."""

    vocab_size: int
    options: dict[str, Any]
    batch: int
    window: int


def demo(layer: str, **more: Any) -> Candidate:
    """The model and the task of `fastweights train char-lm`."""
    options = {**CharLMRecipe(layer=layer).trial().model_options}
    return Candidate(VOCABULARY, {**options, "options": {**options["options"], **more}}, DEMO.batch_size, DEMO.window)


def blocks(layer: str, window: int = 256, batch: int = 4, **more: Any) -> Candidate:
    """A character model of 4 blocks of 128."""
    return Candidate(VOCABULARY, {"layer": layer, **BLOCKS, "options": more}, batch, window)


def paper(model: str, batch: int = 4) -> Candidate:
    """The small model of the papers, 44 million parameters, with `batch` of the 96 windows of an update."""
    return Candidate(WORDS, table_1.trial(model, "truncated", "paper").model_options, batch, 256)


def make_update(
    candidate: Candidate, device: str = "cpu", half: bool = False, compiles: bool = False
) -> Callable[[], None]:
    """A training step of a new model: with `half` in bfloat16 under autocast, with `compiles` in compiled blocks."""
    torch.manual_seed(1)
    model = LanguageModel(candidate.vocab_size, **candidate.options).to(device)
    if compiles:
        compile_blocks(model)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
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
    """Tokens of which the n-th is drawn with a probability of about 1 / n, as words of a text are."""
    return ((torch.rand(shape, dtype=torch.float64) * torch.tensor(vocab_size).double().log()).exp() - 1).long()


def serve(pipe: Any, candidate: Candidate, threads: int) -> None:
    """In a process of its own: an update whenever one is asked for, and then how large the process became."""
    torch.set_num_threads(threads)
    use_arena_allocator()  # as `fastweights train` does: what the system takes for new pages differs by the process
    update = make_update(candidate)
    while pipe.recv():
        start = time.perf_counter()
        update()
        pipe.send(time.perf_counter() - start)
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def measure(candidates: dict[str, Candidate], threads: int, turns: int) -> dict[str, tuple[float, float]]:
    """Median seconds of an update, and bytes of the process, by name."""
    context = multiprocessing.get_context("spawn")
    pipes, processes, times = {}, [], {name: [] for name in candidates}
    for name, candidate in candidates.items():
        pipes[name], theirs = context.Pipe()
        processes.append(context.Process(target=serve, args=(theirs, candidate, threads)))
        processes[-1].start()
    for turn in range(turns + 2):
        for name, pipe in pipes.items():
            pipe.send(True)
            seconds = pipe.recv()
            if turn >= 2:
                times[name].append(seconds)
    found = {}
    for name, pipe in pipes.items():
        pipe.send(False)
        found[name] = statistics.median(times[name]), float(pipe.recv())
    for process in processes:
        process.join()
    return found


def table(title: str, candidates: dict[str, Candidate], first: str, threads: int, turns: int) -> str:
    """Times and memory of some models, and how many times as fast as the first they are."""
    found = measure(candidates, threads, turns)
    published = "" if title != "the papers' small word models" else " the paper's |"
    lines = [f"| {title} | ms an update | tokens a second | times as fast as {first} |{published} memory, MB |"]
    lines.append("|---|---:|---:|---:|" + ("---:|" if published else "") + "---:|")
    for name, (seconds, memory) in found.items():
        one = candidates[name]
        theirs = f" {PUBLISHED.get(name, '')} |" if published else ""
        rate, ratio = one.batch * one.window / seconds, found[first][0] / seconds
        lines.append(f"| {name} | {1e3 * seconds:.1f} | {rate:,.0f} | {ratio:.2f} |{theirs} {memory / 1e6:,.0f} |")
    return "\n".join(lines)


def characters(threads: int) -> str:
    """The demo and the larger character model."""
    layers: dict[str, Any] = {"delta-net": {}, "softmax-attention": {}, "lstm": {}}
    tables = [
        table("the demo", {name: demo(name) for name in layers}, "softmax-attention", threads, 15),
        table("4 blocks of 128", {name: blocks(name) for name in layers}, "softmax-attention", threads, 15),
    ]
    return "\n\n".join(tables)


def words(threads: int) -> str:
    """The small models of the papers."""
    return table("the papers' small word models", {m: paper(m) for m in table_1.MODELS}, "transformer", threads, 9)


def long(threads: int) -> str:
    """Training over T, and a stream of a million tokens."""
    torch.set_num_threads(threads)
    lines = ["| DeltaNet, 4 blocks of 128, one sequence of T | ms an update | tokens a second | memory, MB |"]
    lines.append("|---|---:|---:|---:|")
    for window in LENGTHS:
        ((seconds, memory),) = measure({"": blocks("delta-net", window, 1)}, threads, 3).values()
        lines.append(f"| {window:,} | {1e3 * seconds:.0f} | {window / seconds:,.0f} | {memory / 1e6:,.0f} |")
    return "\n".join([*lines, "", streamed(), one_token()])


def parts(threads: int) -> str:
    """The shares of the parts of a training step."""
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
    lines = [f"| one training step, one thread | {' | '.join(models)} |", f"|---|{'---:|' * len(models)}"]
    lines.append(f"| milliseconds | {' | '.join(f'{1e3 * seconds:.0f}' for seconds, _ in models.values())} |")
    for name in names:
        lines.append(f"| {name}, % | {' | '.join(f'{100 * parts.get(name, 0):.1f}' for _, parts in models.values())} |")
    return "\n".join(lines)


def step_shares(trial: Trial, vocab_size: int, steps: int) -> tuple[float, dict[str, float]]:
    """Seconds of a training step of a trial on random tokens, and the shares of its parts."""
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
    return shares(step, bare, steps)


@torch.inference_mode()
def streamed(piece: int = 1000) -> str:
    """A million tokens, a thousand at a time, from carried state."""
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
    """The small word model of the papers, without a batch; and what no program can do without: to read its weights."""
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
    """Prints the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="write the tables there as CSV")
    tables = {"characters": characters, "paper": words, "long": long, "profile": parts}
    for name in [*tables][1:]:
        parser.add_argument(f"--{name}", action="store_true", help=inspect_first(tables[name]))
    parser.add_argument("--all", action="store_true", help="all tables")
    options = parser.parse_args()
    chosen = [name for name in [*tables][1:] if getattr(options, name)] or ["characters"]
    chosen = [*tables] if options.all else chosen
    said = [f"{options.threads} threads of {environment()['processor']}, torch {torch.__version__}."]
    print(said[0])
    for name in chosen:
        said.append(tables[name](options.threads))
        print(f"\n{said[-1]}", flush=True)
    if options.output_dir:
        write_tables(options.output_dir, [table for name in chosen for table in TABLES[name]], "\n\n".join(said))


def inspect_first(part: Callable[[int], str]) -> str:
    """What a part is, in a line."""
    return (part.__doc__ or "").split(".")[0].lower()


if __name__ == "__main__":
    main()
