"""Reads an endless stream one step at a time with every layer: does memory stay constant, does the state stay finite?

    python benchmarks/stream.py                      # a million steps a layer: hours
    python benchmarks/stream.py --steps 20000 srwm   # shorter, and one layer

Each layer runs in a process of its own, with its defaults; the peak memory of a process only ever rises, so that
`growth` is what the stream added after its first hundredth.
"""

import argparse
import multiprocessing
import resource
import time

import torch
from torch.utils._pytree import tree_leaves

from fastweights.layers import layer_names, make_layer
from names import one_of

D_MODEL, HEADS = 16, 2


def stream(name: str, steps: int) -> str:
    """A line of the table: rate, growth of memory, largest number in the state at a tenth and at the end."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = make_layer(name, D_MODEL, HEADS).eval()
    state, sizes = None, []
    start = time.perf_counter()
    with torch.inference_mode():
        for t in range(steps):
            _, state = layer(torch.randn(1, 1, D_MODEL), state)
            if t in (steps // 100, steps // 10, steps - 1):
                sizes.append((largest(state), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
    rate = steps / (time.perf_counter() - start)
    growth = (sizes[-1][1] - sizes[0][1]) / 1024
    verdict = "finite" if sizes[-1][0] < float("inf") else "NOT FINITE"
    return f"{name:<28} {rate:>9,.0f}/s {growth:>8.1f} MiB {sizes[1][0]:>12.4g} {sizes[-1][0]:>12.4g}  {verdict}"


def largest(state: object) -> float:
    """The largest absolute value, infinite if any is not finite."""
    leaves = [leaf.double().abs().max() for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)]
    top = torch.stack(leaves).max().item() if leaves else 0.0
    return top if top == top else float("inf")


def main() -> None:
    """Prints a line a layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layers", nargs="*", type=one_of("layer", layer_names()), metavar="LAYER", help="default: all")
    parser.add_argument("--steps", type=int, default=1_000_000, help="default: %(default)s")
    options = parser.parse_args()
    print(f"{options.steps:,} steps one by one, d_model {D_MODEL}, {HEADS} heads")
    print(f"{'layer':<28} {'rate':>11} {'growth':>12} {'at a tenth':>12} {'at the end':>12}")
    context = multiprocessing.get_context("spawn")
    for name in options.layers or layer_names():
        with context.Pool(1) as pool:
            print(pool.apply(stream, (name, options.steps)), flush=True)


if __name__ == "__main__":
    main()
