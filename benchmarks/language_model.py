"""Times the training of language models end to end: what is left of a faster scan once everything else is paid for.

    python benchmarks/language_model.py

One update, from tokens to new weights, of the model that `fastweights train oz` trains and of a larger one without
dropout: with DeltaNet on the backends that can run it, and with other layers in its place. Medians of interleaved runs.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from fastweights.models.language_model import LanguageModel
from fastweights.recipes.oz import Oz
from fastweights.training.run import environment

VOCABULARY = 90
DEMO = Oz()
SIZES: dict[str, dict[str, Any]] = {
    "the demo": {"d_model": DEMO.d_model, "depth": DEMO.depth, "heads": DEMO.heads, "dropout": DEMO.dropout},
    "4 blocks of 128": {"d_model": 128, "depth": 4, "heads": 8},
}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "DeltaNet, compiled": ("delta-net", {"normaliser": "l2", "backend": "compiled"}),
    "DeltaNet, chunkwise": ("delta-net", {"normaliser": "l2", "backend": "chunkwise"}),
    "softmax attention": ("softmax-attention", {}),
    "LSTM": ("lstm", {}),
}


def make_update(layer: str, options: dict[str, Any], size: dict[str, Any], tokens: torch.Tensor) -> Callable[[], None]:
    """What trains a freshly initialised model by one step."""
    torch.manual_seed(1)
    model = LanguageModel(VOCABULARY, layer, convolution=DEMO.convolution, options=options, **size)
    optimiser = torch.optim.AdamW(model.parameters(), DEMO.learning_rate, fused=True)

    def update() -> None:
        logits, _ = model(tokens)
        optimiser.zero_grad()
        cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), DEMO.clip)
        optimiser.step()

    return update


def seconds(update: Callable[[], None]) -> float:
    """Of one call."""
    start = time.perf_counter()
    update()
    return time.perf_counter() - start


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokens = torch.randint(0, VOCABULARY, (DEMO.batch_size, DEMO.window))
    print(f"{options.threads} threads of {environment()['processor']}, torch {torch.__version__}\n")
    print("| model | layer | ms an update | tokens a second | times as fast as chunkwise |\n|---|---|---:|---:|---:|")
    for name, size in SIZES.items():
        updates = {way: make_update(*layer, size, tokens) for way, layer in WAYS.items()}
        rounds = [{way: seconds(update) for way, update in updates.items()} for _ in range(33)][3:]
        medians = {way: statistics.median(times[way] for times in rounds) for way in updates}
        for way, median in medians.items():
            faster = medians["DeltaNet, chunkwise"] / median
            print(
                f"| {name} | {way} | {1e3 * median:.1f} | {tokens.numel() / median:,.0f} | {faster:.2f} |", flush=True
            )


if __name__ == "__main__":
    main()
