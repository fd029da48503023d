"""Measures the overhead of the library's own Python in a call of a layer on the CPU.

    python benchmarks/call_overhead.py             # DeltaNet
    python benchmarks/call_overhead.py srwm        # another layer

The script counts the Python frames of this library in a warm call: one frame per entry into a function, comprehension
or generator. The counts are exact and do not depend on the machine, but on the version of Python: 3.12 and later run
comprehensions without a frame. The script also times one streaming step (batch 1, inference mode) and a forward and
backward pass of two time steps, the smallest call that runs the kernels over time.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

import fastweights
from fastweights.layers import layer_names, make_layer
from names import one_of

ROOT = str(Path(fastweights.__file__).parent)
D_MODEL, HEADS = 16, 1
WARM_UP, ROUNDS, SECONDS = 5, 30, 0.05


def frames(call: Callable[[], object]) -> Counter[str]:
    """Number of Python frames of this library in a warm call, by module."""
    counts: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(ROOT):
            counts[file[len(ROOT) + 1 :]] += 1

    for _ in range(WARM_UP):
        call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts


def microseconds(call: Callable[[], object]) -> float:
    """The CPU time of one call: the best mean of several rounds, so that other work on the machine counts least."""
    best = float("inf")
    for _ in range(ROUNDS):
        calls, start = 0, time.process_time()
        while (elapsed := time.process_time() - start) < SECONDS:
            call()
            calls += 1
        best = min(best, elapsed / calls)
    return 1e6 * best


def step(name: str) -> Callable[[], object]:
    """One streaming step of a layer in inference mode."""
    layer, x = make_layer(name, D_MODEL, HEADS).eval(), torch.randn(1, 1, D_MODEL)
    with torch.inference_mode():
        _, state = layer(x)

    def run() -> object:
        with torch.inference_mode():
            return layer(x, state)

    return run


def training(name: str) -> Callable[[], object]:
    """A forward and backward pass of a layer over two time steps."""
    layer, x = make_layer(name, D_MODEL, HEADS), torch.randn(1, 2, D_MODEL)
    return lambda: layer(x)[0].sum().backward()


def main() -> None:
    """Prints the frames and the time of both calls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = one_of("layer", layer_names())
    parser.add_argument(
        "layer", nargs="?", type=names, default="delta-net", help="name of a layer (default: %(default)s)"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    for title, call in (("step", step(options.layer)), ("forward and backward", training(options.layer))):
        counts = frames(call)
        most = ", ".join(f"{count} {file}" for file, count in counts.most_common(4))
        print(f"{title:<21} {counts.total():>4} frames {microseconds(call):>8.1f} us   {most}", flush=True)


if __name__ == "__main__":
    main()
