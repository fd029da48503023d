"""The loop of the fuzzers: verdicts on random cells from several processes, and a table of the verdicts.

A fuzzer makes `Trial`s: a cell made from a seed, a stream and a number, and a method that runs it.
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
about 1 (relative)."""
PERTURBATIONS = 4
"""Runs of the reference with rounding errors before a kernel counts as wrong."""


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
    """ "equal", "refused", "wrong" or "raw", or "void" if the reference gives no numbers; and the reason."""

    kind: str
    why: str = ""


def compared(trial: Trial, backend: str) -> Verdict:
    """Compares a backend with the reference."""
    try:
        want = trial.outcome(trial.arguments, "reference")
    except Exception as error:  # a random step may raise any error
        return Verdict("void", f"{type(error).__name__}: {str(error).partition(chr(10))[0][:80]}")
    if not all(torch.isfinite(x).all() for x in want):
        return Verdict("void", "not finite")
    try:
        got = trial.outcome(trial.arguments, backend)
    except InputError as error:
        message = str(error)
        if "\n" in message:
            return Verdict("raw", message)
        return Verdict("refused", message.partition(f"'{backend}': ")[2] or message)
    except Exception as error:  # an error of another type is a failure
        return Verdict("raw", f"{type(error).__name__}: {error}")
    off = apart(got, want)
    if off <= BOUND[trial.dtype]:
        return Verdict("equal")
    perturbations = [trial.outcome(with_rounding_errors(trial, seed), "reference") for seed in range(PERTURBATIONS)]
    is_wrong = off > 10 * max(apart(perturbed, want) for perturbed in perturbations)
    return Verdict("wrong", f"off by {off:.1e}") if is_wrong else Verdict("void", "the reference jumps here")


def with_rounding_errors(trial: Trial, seed: int) -> Any:
    """Arguments that differ from those of a trial by rounding errors."""
    draw, eps = torch.Generator().manual_seed(seed), torch.finfo(trial.dtype).eps

    def perturbed(x: Tensor) -> Tensor:
        return x * (1 + 8 * eps * torch.randn(x.shape, generator=draw, dtype=trial.dtype))

    return tree_map_only(Tensor, lambda x: perturbed(x) if x.is_floating_point() else x, trial.arguments)


def apart(got: list[Tensor], want: list[Tensor]) -> float:
    """The largest distance between two results; infinity where shapes differ."""
    return max((distance(x, z) for x, z in zip(got, want, strict=True)), default=0.0)


def distance(got: Tensor, want: Tensor) -> float:
    """Distance relative to the norm of `want`, or to 0.01 if the norm is smaller."""
    if got.shape != want.shape:
        return math.inf
    off = ((got - want).norm() / want.norm().clamp(min=0.01)).item()
    return off if math.isfinite(off) else math.inf


Judge = Callable[[int, int, int], tuple[Verdict, str]]
"""Function from seed, stream and number to a verdict and the source of the cell."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """The flags of all fuzzers."""
    flags = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--number", type=int, default=1000, help="Number of cells.")
    flags.add_argument("--seed", type=int, default=0, help="Seed of all cells.")
    flags.add_argument("--only", type=int, nargs=2, metavar=("STREAM", "NUMBER"), help="One cell.")
    return flags


def run(verdict_on: Judge, flags: argparse.Namespace) -> int:
    """Runs random cells and prints every failure with its source, and a table. Returns 1 if there is a failure."""
    if flags.only:
        verdict, text = verdict_on(flags.seed, *flags.only)
        print(text, *verdict, sep="\n")
        return 0
    verdicts, reasons, begin = Counter[str](), Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FASTWEIGHTS_CACHE"] = cache
        for stream, number, (verdict, why), text in _results_of(verdict_on, flags.number, flags.seed):
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


def _show_progress(verdicts: Counter[str], number: int, duration: float) -> None:
    done = verdicts.total()
    left, counts = (number - done) * duration / done, ", ".join(f"{name} {n}" for name, n in verdicts.items())
    print(f"\r{done}/{number}, {done / duration:.2f} per second, {left:.0f} s left: {counts}   ", end="", flush=True)


def _results_of(verdict_on: Judge, number: int, seed: int) -> Iterator[tuple[int, int, Verdict, str]]:
    """Stream, number, verdict and source of every cell, in order of completion."""
    context = get_context("spawn")
    results = context.Queue()
    counts = [len(range(stream, number, PROCESSES)) for stream in range(PROCESSES)]
    processes = [
        context.Process(target=_work, args=(verdict_on, seed, stream, count, results), daemon=True)
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
            result: tuple[int, int, Verdict, str] = results.get(timeout=5)
            return result
        except queue.Empty:
            dead = [p.exitcode for p in processes if p.exitcode]
            if dead:
                raise RuntimeError(f"a process ended with exit code {dead[0]}") from None


def _work(verdict_on: Judge, seed: int, stream: int, count: int, results: Any) -> None:
    """The main function of one process."""
    torch.set_num_threads(1)
    # A wrong result is wrong without optimisation too, and the build takes half the time.
    build.BEST = toolchain.BEST = tuple("-O0" if flag == "-O3" else flag for flag in build.BEST)
    parent = os.getppid()
    for number in range(count):
        if os.getppid() != parent:
            sys.exit()
        results.put((stream, number, *verdict_on(seed, stream, number)))


def short(why: str) -> str:
    """A reason without the line of code, for the counts."""
    return why.partition(", in ")[0].partition(" in <a user's cell>")[0].partition(" in fuzz_cells")[0][:100]
