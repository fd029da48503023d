"""A program that translates sentences."""

from typing import Any

import torch
from torch import Tensor, nn

from fastweights.adapters.standalone.pieces import pieces_of
from fastweights.adapters.standalone.standalone_program import StandaloneProgram
from fastweights.compiler.network.leaves import leaves, rebuilt
from fastweights.compiler.network.network_call import NetworkCall
from fastweights.core.errors import require
from fastweights.models import Translator

LONGEST = 250
"""Maximum number of source tokens of a program. Memory and time of the encoder depend on it."""


class EncoderCall(nn.Module):
    """The encoder of a translator, for sources with padding.

    Args:
        model: The translator.
    """

    def __init__(self, model: Translator) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, length: Tensor, state: Any) -> tuple[Any]:
        """Maps a source `[1, S]` and its length `[1]` to the state before the first target token."""
        model = self.model
        x, _ = model.positions(model.scale * model.embedding(source))
        new = model.encode_embedded(x, length)
        # A compiled step has a state of one shape, so that a cache is full from the start.
        return (new._replace(layers=tuple(block.layer.initial_state(1) for block in model.decoder)),)


class DecoderStep(nn.Module):
    """One time step of the decoder of a translator.

    Args:
        model: The translator.
    """

    def __init__(self, model: Translator) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Maps a target token `[1, 1]` and a state to the logits `[1, 1, N]` of the next one and the state."""
        return self.model.decode(token, state)


@torch.no_grad()
def program(model: Translator, task: Any) -> StandaloneProgram:
    """The encoder and the step of a translator, and its byte-pair encoding."""
    tokenizer: Any = getattr(task, "tokenizer", None)
    unit = getattr(tokenizer, "unit", None)
    require(unit == "piece", "tokenizer", "byte-pair encoding", type(tokenizer).__name__, "Use fastweights translate.")
    encoder, longest = EncoderCall(model).eval(), min(task.longest, LONGEST)
    source, length = torch.zeros(1, longest, dtype=torch.long), torch.ones(1, dtype=torch.long)
    (example,) = encoder(source, length, None)
    state = rebuilt(example, (torch.zeros_like(x) for x in leaves(example)[0]))
    token = torch.zeros(1, 1, dtype=torch.long)
    calls = {
        "step": NetworkCall(DecoderStep(model).eval(), {"token": token, "state": state}, ["logits"]),
        "encode": NetworkCall(encoder, {"source": source, "length": length, "state": state}, []),
    }
    return StandaloneProgram(
        main="translator",
        calls=calls,
        text=pieces_of(tokenizer),
        usage="./run network.weights < sentences.txt",
        in_python="fastweights translate",
        parts={"tokenizer.h": "pieces.h"},
    )
