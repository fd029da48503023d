"""Memory, communication and time of a model of 1.3 B parameters and 100 B tokens on many accelerators, by formulas.

    python benchmarks/scale.py                       # prints the tables
    python benchmarks/scale.py --into docs/scale.md
    python benchmarks/scale.py --flops 2e14 --between 2.5e10 --tokens 1048576     # another machine, another batch

Sizes of weights and states are those of `LanguageModel`. The activations that a block saves for its backward pass are
counted (`SAVED`). Speeds of accelerators and networks are assumptions (`Machine`). Communication may overlap fully with
computation, so that the times are lower bounds. All numbers are in float32 (4 bytes).
"""

import argparse
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fastweights.layers import make_layer
from fastweights.models import LanguageModel
from fastweights.models.block import Block
from page import put

VOCABULARY, D, DEPTH, HEADS = 32_000, 2048, 24, 16
SAVED = 24
"""Numbers per token that a block saves for its backward pass, divided by D: the result of `saved`."""
BYTES = 4
NUMBERS = (8, 64, 512)
CONTEXTS = ((2048, 2), (16_384, 8), (131_072, 8), (131_072, 64), (1 << 20, 64), (1 << 20, 512))
GB, MB = 1e9, 1e6


@dataclass(frozen=True)
class Machine:
    """Assumptions on accelerators and on a run."""

    flops: float = 4e14
    within: float = 4.5e11
    between: float = 5e10
    node: int = 8
    delay: float = 1e-5
    tokens: int = 1 << 19
    together: int = 8192
    total: float = 1e11

    def wire(self, number: int) -> float:
        """Bytes per second of the slowest link between `number` accelerators."""
        return self.within if number <= self.node else self.between


HELP = {
    "flops": "operations per second of an accelerator, the default is 40 %% of 989 TFLOP/s, bfloat16 on an H100",
    "within": "bytes per second between accelerators of a node (NVLink)",
    "between": "bytes per second between nodes (InfiniBand, 400 Gbit/s)",
    "node": "accelerators per node",
    "delay": "seconds of latency per message",
    "tokens": "tokens per training step",
    "together": "maximum number of tokens per accelerator and forward pass",
    "total": "tokens of the whole run",
}
"""Meanings of the fields of a machine."""


@dataclass(frozen=True)
class Model:
    """Numbers of parameters, of parameters per block, and in the state of a block for one sequence."""

    parameters: int
    block: int
    state: int


def model() -> Model:
    """Sizes of the model, counted on the meta device."""
    with torch.device("meta"):
        net = LanguageModel(VOCABULARY, "delta-net", D, DEPTH, HEADS, tie_word_embeddings=True)
        state = net.initial_state(1)
    parameters, block = (sum(p.numel() for p in part.parameters()) for part in (net, net.blocks[0]))
    return Model(parameters, block, sum(leaf.numel() for leaf in tree_leaves(state.layers[0])))


def saved(d: int = 256, batch: int = 8, steps: int = 512) -> float:
    """Counted numbers per token that a block saves, divided by D. Heads are as large as those of the model."""
    torch.manual_seed(1)
    layer = make_layer("delta-net", d, num_heads=d * HEADS // D, backend="chunkwise")
    block, tensors = Block(layer, d, 4 * d), {}

    def save(tensor: Tensor) -> Tensor:
        tensors[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        y, _ = block(torch.randn(batch, steps, d, requires_grad=True))
    weights = {p.untyped_storage().data_ptr() for p in block.parameters()}
    numbers = sum(t.untyped_storage().nbytes() / BYTES for place, t in tensors.items() if place not in weights)
    assert y.requires_grad
    return numbers / (batch * steps * d)


def at_once(machine: Machine, number: int) -> int:
    """Tokens per accelerator and forward pass."""
    return min(machine.together, machine.tokens // number)


def weights(model: Model, number: int, parts: int = 1) -> float:
    """Bytes of weights, gradients and two moments per accelerator, sharded over `number` of them.

    Two blocks and the embedding are unsharded, and so are gradients with gradient accumulation.
    """
    whole = 2 * model.block + VOCABULARY * D + (model.parameters if parts > 1 else 0)
    return BYTES * (4 * model.parameters / number + (whole if number > 1 else 0))


def activations(tokens: int, recompute: bool) -> float:
    """Bytes saved for the backward pass, including logits and their gradients."""
    blocks = DEPTH + SAVED if recompute else DEPTH * SAVED
    return BYTES * tokens * (D * blocks + 3 * VOCABULARY)


def sent_ddp(model: Model, number: int) -> float:
    """Bytes that each accelerator sends per training step: two rounds of all gradients."""
    return 2 * BYTES * model.parameters * (number - 1) / number


def sent_fsdp(model: Model, number: int, parts: int) -> float:
    """Bytes per training step with FSDP: two rounds of the weights per part of a batch, and one of the gradients."""
    return (2 * parts + 1) * BYTES * model.parameters * (number - 1) / number


def sent_state(model: Model) -> float:
    """Bytes between neighbours for one sequence split over them: the state of every block, and its gradient."""
    return 2 * BYTES * DEPTH * model.state


def seconds(model: Model, machine: Machine, tokens: float, recompute: bool = True) -> float:
    """Seconds of computation: 6 operations per parameter and token, 8 with gradient checkpointing."""
    return (8 if recompute else 6) * model.parameters * tokens / machine.flops


def waiting(model: Model, machine: Machine, ranks: int) -> float:
    """Seconds that the last rank waits for states and the first rank for gradients, over all blocks."""
    hop = machine.delay + BYTES * model.state / machine.wire(ranks)
    return 2 * DEPTH * (ranks - 1) * hop


def row(model: Model, machine: Machine, number: int) -> str:
    """Row for a number of accelerators."""
    mine, once = machine.tokens // number, at_once(machine, number)
    parts = mine // once
    sends = sent_ddp(model, number), sent_fsdp(model, number, parts)
    step = seconds(model, machine, mine)
    busy = [step / max(step, sent / machine.wire(number)) for sent in sends]
    days = machine.total / machine.tokens * step / busy[1] / 86_400
    sizes = weights(model, number, parts), activations(once, False), activations(once, True)
    return table_row(
        f"{number:,}",
        f"{mine:,}",
        *(f"{size / GB:.1f}" for size in sizes),
        *(text for sent, share in zip(sends, busy, strict=True) for text in (f"{sent / GB:.1f}", f"{share:.0%}")),
        f"{days:.1f}",
    )


def context(model: Model, machine: Machine, ranks: int, length: int) -> str:
    """Row for a sequence split over ranks."""
    mine = length // ranks
    computed, waits = seconds(model, machine, mine), waiting(model, machine, ranks)
    sent, keys_and_values = sent_state(model), 2 * 2 * BYTES * DEPTH * D * mine
    return table_row(
        f"{length:,}",
        f"{ranks}",
        f"{mine:,}",
        f"{sent / MB:,.0f}",
        f"{keys_and_values / MB:,.0f}",
        f"{1e3 * computed:.0f}",
        f"{1e3 * waits:.1f}",
        f"{computed / (computed + waits):.0%}",
    )


def table_row(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def hidden(machine: Machine, times: int) -> float:
    """Tokens per accelerator whose computation takes as long as sending all weights or gradients `times` times."""
    return times * BYTES * machine.flops / 8 / machine.between


def lines(machine: Machine) -> list[str]:
    """Lines of the text with the tables."""
    m, each = model(), [hidden(machine, times) for times in (2, 3)]
    head = ["accelerators", "tokens each", "weights GB", "activations GB", "recomputed GB"]
    head += ["DDP: GB sent", "busy", "FSDP: GB sent", "busy", "days"]
    cut = ["tokens of a sequence", "ranks", "tokens each", "states MB", "keys and values MB"]
    cut += ["computing ms", "waiting ms", "busy"]
    return [
        f"The model has {m.parameters / 1e9:.2f} B parameters: {DEPTH} blocks of {m.block / 1e6:.1f} M, D = {D:,},",
        f"{HEADS} heads of {D // HEADS}, {VOCABULARY:,} tokens. Its state has {BYTES * m.state / MB:.2f} MB per block",
        f"and sequence. A block saves {SAVED} D numbers per token. A training step has {machine.tokens:,}",
        f"tokens, and the run has {machine.total / machine.tokens:,.0f} steps.",
        f"With DDP, each accelerator stores {weights(m, 1) / GB:.1f} GB.",
        "",
        table_row(*head),
        "|---:" * len(head) + "|",
        *(row(m, machine, number) for number in NUMBERS),
        "",
        f"Between nodes, communication overlaps fully with computation if an accelerator has {each[0]:,.0f} tokens",
        f"with DDP, or {each[1]:,.0f} with FSDP. For this training step, that is the case for up to",
        f"{machine.tokens / each[0]:.0f} and {machine.tokens / each[1]:.0f} accelerators.",
        "",
        table_row(*cut),
        "|---:" * len(cut) + "|",
        *(context(m, machine, ranks, length) for length, ranks in CONTEXTS),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, metavar="PAGE", help="page that gets the tables between its marks")
    for field in fields(Machine):
        words = f"{HELP[field.name]} (default: {field.default:.10g})"
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default, metavar="N", help=words)
    options = vars(parser.parse_args())
    into = options.pop("into")
    text = "\n".join(lines(Machine(**options)))
    print(text)
    if into:
        put(into, "scale", text)


if __name__ == "__main__":
    main()
