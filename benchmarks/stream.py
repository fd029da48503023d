"""Streams random inputs through every layer, one time step at a time, and checks that memory and state stay bounded.

    python benchmarks/stream.py                      # a million steps per layer: hours
    python benchmarks/stream.py --steps 20000 srwm   # fewer steps of one layer

Each layer runs with its defaults in a separate process. `growth` is the increase of the peak memory after the first
hundredth of the stream.
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
    """Row of a layer: rate, growth of memory, and the largest number in the state after a tenth and at the end."""
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
    """Largest absolute value; infinite if any value is not finite."""
    leaves = [leaf.double().abs().max() for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)]
    top = torch.stack(leaves).max().item() if leaves else 0.0
    return top if top == top else float("inf")


def main() -> None:
    """Prints one line per layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "layers", nargs="*", type=one_of("layer", layer_names()), metavar="LAYER", help="names of layers (default: all)"
    )
    parser.add_argument("--steps", type=int, default=1_000_000, help="time steps per layer (default: %(default)s)")
    options = parser.parse_args()
    print(f"{options.steps:,} steps one by one, d_model {D_MODEL}, {HEADS} heads")
    print(f"{'layer':<28} {'rate':>11} {'growth':>12} {'at a tenth':>12} {'at the end':>12}")
    context = multiprocessing.get_context("spawn")
    for name in options.layers or layer_names():
        with context.Pool(1) as pool:
            print(pool.apply(stream, (name, options.steps)), flush=True)


if __name__ == "__main__":
    main()
