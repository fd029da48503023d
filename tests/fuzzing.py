"""The loop of the fuzzers: random cells in several processes, their verdicts, and a table of these.

A fuzzer gives `Trial`s. Each has a cell made from a seed, a stream and a number, and says how to run it.
"""

import argparse
import math
import os
import queue
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from fastweights import InputError
from fastweights.compiler.targets.cpp import build, toolchain

PROCESSES = 2
BOUND = {torch.float64: 1e-7, torch.float32: 1e-2}
"""Relative errors that are too large for rounding. The condition of a random cell is unknown; a wrong result is off by
about 1."""
NUDGES = 4
"""Runs of the reference on nudged numbers before a kernel is called wrong."""


class Trial(Protocol):
    """A random cell with its arguments."""

    @property
    def arguments(self) -> Any:
        """The arguments of the scan."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the arguments."""

    def outcome(self, arguments: Any, backend: str) -> list[Tensor]:
        """Results and gradients."""


class Verdict(NamedTuple):
    """ "equal", "refused", "wrong", "raw" or, where the reference gives no numbers, "void"; and the reason."""

    kind: str
    why: str = ""


def compared(trial: Trial, backend: str) -> Verdict:
    """Compares a backend with the reference."""
    try:
        want = trial.outcome(trial.arguments, "reference")
    except Exception as error:  # whatever a random step may raise
        return Verdict("void", f"{type(error).__name__}: {str(error).partition(chr(10))[0][:80]}")
    if not all(torch.isfinite(x).all() for x in want):
        return Verdict("void", "not finite")
    try:
        got = trial.outcome(trial.arguments, backend)
    except InputError as error:
        told = str(error)
        return Verdict("raw", told) if "\n" in told else Verdict("refused", told.partition(f"'{backend}': ")[2] or told)
    except Exception as error:  # a raw error of any type is a finding
        return Verdict("raw", f"{type(error).__name__}: {error}")
    off = apart(got, want)
    if off <= BOUND[trial.dtype]:
        return Verdict("equal")
    nudges = [trial.outcome(nudged(trial, seed), "reference") for seed in range(NUDGES)]
    is_wrong = off > 10 * max(apart(nudge, want) for nudge in nudges)
    return Verdict("wrong", f"off by {off:.1e}") if is_wrong else Verdict("void", "the reference jumps here")


def nudged(trial: Trial, seed: int) -> Any:
    """Arguments that differ from those of a trial by rounding."""
    draw, eps = torch.Generator().manual_seed(seed), torch.finfo(trial.dtype).eps

    def nudge(x: Tensor) -> Tensor:
        return x * (1 + 8 * eps * torch.randn(x.shape, generator=draw, dtype=trial.dtype))

    return tree_map_only(Tensor, lambda x: nudge(x) if x.is_floating_point() else x, trial.arguments)


def apart(got: list[Tensor], want: list[Tensor]) -> float:
    """The largest distance between two results; infinity where shapes differ."""
    return max((distance(x, z) for x, z in zip(got, want, strict=True)), default=0.0)


def distance(got: Tensor, want: Tensor) -> float:
    """Relative to the norm of `want` or, where that is small, to 0.01."""
    if got.shape != want.shape:
        return math.inf
    off = ((got - want).norm() / want.norm().clamp(min=0.01)).item()
    return off if math.isfinite(off) else math.inf


Tried = Callable[[int, int, int], tuple[Verdict, str]]
"""From seed, stream and number to a verdict and the code of the cell."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """The flags that every fuzzer has."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--number", type=int, default=1000, help="Number of cells.")
    made.add_argument("--seed", type=int, default=0, help="Seed of all cells.")
    made.add_argument("--only", type=int, nargs=2, metavar=("STREAM", "NUMBER"), help="One cell.")
    return made


def run(tried: Tried, flags: argparse.Namespace) -> int:
    """Runs random cells, prints every failure with its code, and a table. Returns 1 if there is a failure."""
    if flags.only:
        verdict, text = tried(flags.seed, *flags.only)
        print(text, *verdict, sep="\n")
        return 0
    verdicts, reasons, begin = Counter[str](), Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FASTWEIGHTS_CACHE"] = cache
        for stream, number, (verdict, why), text in _results_of(tried, flags.number, flags.seed):
            verdicts[verdict] += 1
            reasons[short(why)] += verdict in ("refused", "void")
            if verdict in ("wrong", "raw"):
                print(f"\n--only {stream} {number}: {verdict}: {why}\n{text}", flush=True)
            _show_progress(verdicts, flags.number, time.monotonic() - begin)
    print()
    for reason, count in reasons.most_common():
        if count:
            print(f"  {count:4} {reason}")
    print(", ".join(f"{kind} {verdicts[kind]}" for kind in ("equal", "refused", "void", "wrong", "raw")))
    return 1 if verdicts["wrong"] + verdicts["raw"] else 0


def _show_progress(verdicts: Counter[str], number: int, took: float) -> None:
    done = verdicts.total()
    left, told = (number - done) * took / done, ", ".join(f"{name} {n}" for name, n in verdicts.items())
    print(f"\r{done}/{number}, {done / took:.2f} per second, {left:.0f} s left: {told}   ", end="", flush=True)


def _results_of(tried: Tried, number: int, seed: int) -> Iterator[tuple[int, int, Verdict, str]]:
    """Stream, number, verdict and code of every cell, as they come."""
    context = get_context("spawn")
    results = context.Queue()
    counts = [len(range(stream, number, PROCESSES)) for stream in range(PROCESSES)]
    processes = [
        context.Process(target=_work, args=(tried, seed, stream, count, results), daemon=True)
        for stream, count in enumerate(counts)
    ]
    for process in processes:
        process.start()
    for _ in range(number):
        yield _next(results, processes)
    for process in processes:
        process.join()


def _next(results: Any, processes: list[Any]) -> tuple[int, int, Verdict, str]:
    while True:
        try:
            found: tuple[int, int, Verdict, str] = results.get(timeout=5)
            return found
        except queue.Empty:
            dead = [p.exitcode for p in processes if p.exitcode]
            if dead:
                raise RuntimeError(f"a process ended with exit code {dead[0]}") from None


def _work(tried: Tried, seed: int, stream: int, count: int, results: Any) -> None:
    """One process."""
    torch.set_num_threads(1)
    # A wrong result is wrong without optimisation too, and the build takes half the time.
    build.BEST = toolchain.BEST = tuple("-O0" if flag == "-O3" else flag for flag in build.BEST)
    parent = os.getppid()
    for number in range(count):
        if os.getppid() != parent:
            sys.exit()
        results.put((stream, number, *tried(seed, stream, number)))


def short(why: str) -> str:
    """A reason without the line of code, to be counted."""
    return why.partition(", in ")[0].partition(" in <a user's cell>")[0].partition(" in fuzz_cells")[0][:100]
