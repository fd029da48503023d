"""What a model of 1.3 B parameters on 100 B tokens needs on many accelerators, by formulas. Nothing is trained.

    python benchmarks/scale.py                       # prints the tables
    python benchmarks/scale.py --into docs/scale.md
    python benchmarks/scale.py --flops 2e14 --between 2.5e10 --tokens 1048576     # of another machine, or batch

Sizes of weights and states are those of the library's own `LanguageModel`, what a block keeps for its backward pass is
counted (`KEPT`), and what an accelerator and its wires do is stated (`Machine`). Communication may lie wholly behind
computation here, so that no real machine does better; all numbers are in float32 (4 bytes).
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
KEPT = 24
"""What a block keeps for its backward pass, over D, a token: as `kept` counts it."""
BYTES = 4
NUMBERS = (8, 64, 512)
CONTEXTS = ((2048, 2), (16_384, 8), (131_072, 8), (131_072, 64), (1 << 20, 64), (1 << 20, 512))
GB, MB = 1e9, 1e6


@dataclass(frozen=True)
class Machine:
    """What is assumed of accelerators and of a run: see `--help`."""

    flops: float = 4e14  # a second that one gets: 40 % of 989 TFLOP/s, dense products in bfloat16 on an H100
    memory: float = 80 * GB  # bytes of one
    within: float = 4.5e11  # bytes a second that one sends to others of its node (NVLink)
    between: float = 5e10  # to another node (InfiniBand, 400 Gbit/s)
    node: int = 8  # accelerators of a node
    delay: float = 1e-5  # seconds until a message arrives, however short
    tokens: int = 1 << 19  # of an update
    length: int = 2048  # tokens of a sequence
    together: int = 8192  # tokens that one takes at once, at most
    total: float = 1e11  # tokens of the run

    def wire(self, number: int) -> float:
        """Bytes a second of the slowest wire that `number` of them share."""
        return self.within if number <= self.node else self.between


@dataclass(frozen=True)
class Model:
    """Numbers in the weights, in those of a block, and in its state of one sequence."""

    parameters: int
    block: int
    state: int


def model() -> Model:
    """The sizes, from a model that takes no memory."""
    with torch.device("meta"):
        net = LanguageModel(VOCABULARY, "delta-net", D, DEPTH, HEADS, tie_word_embeddings=True)
        state = net.initial_state(1)
    sizes = [sum(p.numel() for p in part.parameters()) for part in (net, net.blocks[0])]
    return Model(*sizes, sum(leaf.numel() for leaf in tree_leaves(state.layers[0])))


def kept(d: int = 256, batch: int = 8, steps: int = 512) -> float:
    """What a block with heads as large as the model's keeps, counted: numbers a token over its D."""
    torch.manual_seed(1)
    layer = make_layer("delta-net", d, num_heads=d * HEADS // D, backend="chunkwise")
    block, found = Block(layer, d, 4 * d), {}

    def keep(tensor: Tensor) -> Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y, _ = block(torch.randn(batch, steps, d, requires_grad=True))
    weights = {p.untyped_storage().data_ptr() for p in block.parameters()}
    numbers = sum(t.untyped_storage().nbytes() / BYTES for place, t in found.items() if place not in weights)
    assert y.requires_grad
    return numbers / (batch * steps * d)


def at_once(machine: Machine, number: int) -> int:
    """Tokens that each of `number` accelerators takes at once."""
    return min(machine.together, machine.tokens // number)


def weights(model: Model, number: int, parts: int = 1) -> float:
    """Bytes of weights, gradients and two moments, cut over so many accelerators.

    As a whole there are two blocks and the embedding, and gradients while parts of a batch add to them.
    """
    whole = 2 * model.block + VOCABULARY * D + (model.parameters if parts > 1 else 0)
    return BYTES * (4 * model.parameters / number + (whole if number > 1 else 0))


def activations(tokens: int, recompute: bool) -> float:
    """Bytes kept for the backward pass, logits and their gradients included."""
    blocks = DEPTH + KEPT if recompute else DEPTH * KEPT
    return BYTES * tokens * (D * blocks + 3 * VOCABULARY)


def sent_ddp(model: Model, number: int) -> float:
    """Bytes that each sends an update: all gradients go round twice."""
    return 2 * BYTES * model.parameters * (number - 1) / number


def sent_fsdp(model: Model, number: int, parts: int) -> float:
    """The weights are put together before and again after for every part of a batch, gradients are shared once."""
    return (2 * parts + 1) * BYTES * model.parameters * (number - 1) / number


def sent_state(model: Model) -> float:
    """Bytes between neighbours for one sequence cut over them: the state of every block, and its gradient back."""
    return 2 * BYTES * DEPTH * model.state


def seconds(model: Model, machine: Machine, tokens: float, recompute: bool = True) -> float:
    """Of computation: 6 operations a parameter and token, 8 if blocks are computed again."""
    return (8 if recompute else 6) * model.parameters * tokens / machine.flops


def waiting(model: Model, machine: Machine, ranks: int) -> float:
    """Seconds that the last of the ranks waits for states and the first for gradients, block by block, one sequence."""
    hop = machine.delay + BYTES * model.state / machine.wire(ranks)
    return 2 * DEPTH * (ranks - 1) * hop


def row(model: Model, machine: Machine, number: int) -> str:
    """One number of accelerators."""
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
    """A sequence cut over ranks."""
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
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def hidden(machine: Machine, times: int) -> float:
    """Tokens an accelerator whose computation takes as long as to send all weights or gradients so many times."""
    return times * BYTES * machine.flops / 8 / machine.between


def lines(machine: Machine) -> list[str]:
    """The tables."""
    m, each = model(), [hidden(machine, times) for times in (2, 3)]
    head = ["accelerators", "tokens each", "weights GB", "activations GB", "recomputed GB"]
    head += ["DDP: GB sent", "busy", "FSDP: GB sent", "busy", "days"]
    cut = ["tokens of a sequence", "ranks", "tokens each", "states MB", "keys and values MB"]
    cut += ["computing ms", "waiting ms", "busy"]
    return [
        f"The model has {m.parameters / 1e9:.2f} B parameters: {DEPTH} blocks of {m.block / 1e6:.1f} M, D = {D:,},",
        f"{HEADS} heads of {D // HEADS}, {VOCABULARY:,} tokens. Its state is {BYTES * m.state / MB:.2f} MB per block",
        f"and sequence. A block stores {KEPT} D numbers per token. A training step reads {machine.tokens:,} tokens,",
        f"so there are {machine.total / machine.tokens:,.0f} steps. Under DDP each accelerator holds "
        f"{weights(m, 1) / GB:.1f} GB.",
        "",
        table_row(*head),
        "|---:" * len(head) + "|",
        *(row(m, machine, number) for number in NUMBERS),
        "",
        f"Between nodes, computation hides the messages if an accelerator has {each[0]:,.0f} tokens under DDP, or",
        f"{each[1]:,.0f} under FSDP. This batch has as many on up to {machine.tokens / each[0]:.0f} and "
        f"{machine.tokens / each[1]:.0f} accelerators.",
        "",
        table_row(*cut),
        "|---:" * len(cut) + "|",
        *(context(m, machine, ranks, length) for length, ranks in CONTEXTS),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the tables into this page, between its marks")
    for field in fields(Machine):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    options = vars(parser.parse_args())
    into = options.pop("into")
    text = "\n".join(lines(Machine(**options)))
    print(text)
    if into:
        put(into, "scale", text)


if __name__ == "__main__":
    main()
