"""Microseconds per time step of a word model and an agent: compiled, layer by layer, and by other libraries.

    python benchmarks/network_step.py [--rounds 20] [--threads 1 2] [--output-dir docs/measurements]

The word model is the small one of the papers (16 blocks, D = 128, D_ff = 2048) with the vocabulary of WikiText-2. The
agent is a Recurrent DeltaNet of two blocks for Catch. All runs alternate, so that other work on the machine slows all
of them down. A time is the minimum over rounds. `reading` adds up the same weights with the same threads: no step can
be faster unless its weights are in the cache. `onnxruntime` is measured if it is installed.
"""

import argparse
import time
from collections.abc import Callable
from ctypes import c_float, c_int, c_int64, c_void_p
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from csv_tables import write_tables
from fastweights import InputError, compile_step
from fastweights.adapters.onnx import export
from fastweights.compiler.targets.cpp import build
from fastweights.models import Agent, LanguageModel
from fastweights.steps import Recurrence, compiled_after
from fastweights.training.run_folder.environment import environment

READING = r"""
#include <stdint.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#define omp_get_num_threads() 1
#endif
typedef float vec __attribute__((vector_size(64)));
extern "C" __attribute__((visibility("default")))
float reading(const float** p, const int64_t* n, int count, int threads) {
    float result = 0;
    #pragma omp parallel num_threads(threads) if (threads > 1) reduction(+ : result)
    {
        const int me = omp_get_thread_num(), team = omp_get_num_threads();
        vec sum[8] = {};
        for (int i = 0; i < count; ++i) {
            const int64_t blocks = n[i] / 128, first = blocks * me / team, last = blocks * (me + 1) / team;
            for (int64_t k = first; k < last; ++k)
                for (int j = 0; j < 8; ++j) {
                    vec x;
                    memcpy(&x, p[i] + k * 128 + j * 16, sizeof x);
                    sum[j] += x;
                }
        }
        for (int j = 0; j < 8; ++j)
            for (int l = 0; l < 16; ++l) result += sum[j][l];
    }
    return result;
}
"""
VOCABULARY = 33_278
Run = Callable[[], Any]


def word_model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Small word model of Schlag et al. 2021, and the inputs of a time step."""
    model = LanguageModel(
        VOCABULARY, "delta-net", 128, 16, 8, 2048, norm="post", scale_embeddings=True, cutoffs=(2000, 8000)
    )
    return model.eval(), (torch.zeros(1, 1, dtype=torch.long),)


def agent() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Agent for Catch, and the inputs of a time step."""
    model = Agent(
        (10, 5), 3, from_pixels=False, layer="recurrent-delta-net", d_model=128, num_layers=2, num_heads=4, d_ff=512
    )
    flags = torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.bool)
    return model.eval(), (torch.rand(1, 1, 10, 5), torch.zeros(1, 1), *flags)


def reading(module: nn.Module, threads: int) -> Run:
    """Sums up all weights of a module once."""
    stem = build.stem("reading", build.source_digest(READING))
    function = (build.load(stem) or build.build(READING, stem)).reading
    function.restype, weights = c_float, [p.detach() for p in module.parameters()]
    places = (c_void_p * len(weights))(*[w.data_ptr() for w in weights])
    sizes = (c_int64 * len(weights))(*[w.numel() for w in weights])
    return lambda: function(places, sizes, c_int(len(weights)), c_int(threads))


def layer_by_layer(module: nn.Module, inputs: tuple[Tensor, ...], state: Any) -> Run:
    """A step of the module itself."""

    def run() -> None:
        with compiled_after(None):
            module(*inputs, state)

    return run


def compiled(module: nn.Module, inputs: tuple[Tensor, ...], state: Any) -> Run:
    """A compiled step, called like the module."""

    def run() -> None:
        with compiled_after(0):
            module(*inputs, state)

    run()
    return run


def recurrent(module: nn.Module, inputs: tuple[Tensor, ...], state: Any, weights: str) -> Run:
    """A compiled step that owns the state, as in `generate`, with weights in a given precision."""
    compile_step(module, *inputs, state, weights=weights)
    steps = Recurrence(module, state)

    def run() -> None:
        with compiled_after(0):
            steps(*inputs)

    run()
    return run


def by_torch_compile(module: nn.Module, inputs: tuple[Tensor, ...], state: Any) -> Run:
    """A step by `torch.compile`."""
    traced = torch.compile(module, fullgraph=True)
    traced(*inputs, state)
    return lambda: traced(*inputs, state)


def by_onnxruntime(module: nn.Module, inputs: tuple[Tensor, ...], state: Any, threads: int) -> Run:
    """A step by onnxruntime, for modules with one input. Raises `ImportError` without onnxruntime."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = threads, 3
    with TemporaryDirectory() as folder:
        file = Path(folder, "step.onnx")
        export(module, inputs[0].repeat(2, 2), file, opset=18)
        session = onnxruntime.InferenceSession(str(file), settings)
    values = [x.numpy() for x in (*inputs, *tree_leaves(state))]
    arguments = dict(zip([x.name for x in session.get_inputs()], values, strict=True))
    return lambda: session.run(None, arguments)


def runs_of(module: nn.Module, inputs: tuple[Tensor, ...], threads: int, others: bool) -> dict[str, Run]:
    """All runs of a time step, by name."""
    with compiled_after(None):
        *_, state = module(*inputs, module.initial_state(1))  # type: ignore[operator]
    results = {
        "reading": reading(module, threads),
        "layer by layer": layer_by_layer(module, inputs, state),
        "compiled": compiled(module, inputs, state),
        **{f"own state, {name}": recurrent(module, inputs, state, name) for name in ("float32", "bfloat16", "int8")},
    }
    compile_step(module, *inputs, state)  # "compiled" in float32 again
    if others:
        results["torch.compile"] = by_torch_compile(module, inputs, state)
        try:
            results |= {"onnxruntime": by_onnxruntime(module, inputs, state, threads)} if len(inputs) == 1 else {}
        except (InputError, ImportError) as error:
            print(f"onnxruntime is left out: {error}")
    return results


def measure(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """Microseconds of every run, in alternation."""
    times = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            for _ in range(3):
                start = time.perf_counter()
                run()
                times[name] = min(times[name], (time.perf_counter() - start) * 1e6)
    return times


def table(title: str, make: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]], options: argparse.Namespace) -> str:
    """Measures a module with every number of threads, and returns a Markdown table."""
    module, inputs = make()
    size = sum(p.numel() for p in module.parameters()) * 4 / 1e6
    lines = [f"{title}, {size:.1f} MB of weights in float32", "", "| way | threads | microseconds | x reading |"]
    lines.append("|---|--:|--:|--:|")
    for threads in options.threads:
        torch.set_num_threads(threads)
        times = measure(runs_of(module, inputs, threads, not options.no_others), options.rounds)
        for name, us in times.items():
            lines.append(f"| {name} | {threads} | {us:.0f} | {us / times['reading']:.2f} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


@torch.inference_mode()
def main() -> None:
    """Prints a table per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of measurements (default: %(default)s)")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], help="numbers of CPU threads (default: 1 and 2)"
    )
    parser.add_argument("--no-others", action="store_true", help="no measurements of torch.compile and onnxruntime")
    parser.add_argument(
        "--output-dir", type=Path, metavar="DIR", help="folder for word-model-step.csv and agent-step.csv"
    )
    options = parser.parse_args()
    tables = [table("Word model", word_model, options), table("Agent", agent, options)]
    machine = f"{environment()['processor']}, torch {torch.__version__}. Each time is the smallest of its turns."
    if options.output_dir:
        for name, text in zip(("word-model-step", "agent-step"), tables, strict=True):
            write_tables(options.output_dir, [name], f"{machine}\n\n{text}")


if __name__ == "__main__":
    main()
