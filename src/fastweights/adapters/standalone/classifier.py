"""A program that classifies sequences."""

from struct import pack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.adapters.standalone.sized import sized
from fastweights.adapters.standalone.standalone_program import StandaloneProgram
from fastweights.adapters.standalone.tokenizer import tokenizer_of
from fastweights.compiler.network.network_call import NetworkCall
from fastweights.models import SequenceClassifier


class ClassifierState(NamedTuple):
    """The state of the blocks, and the sum and the number of their outputs."""

    memory: Any
    total: Tensor  # [1, 1, D]
    steps: Tensor  # [1, 1, 1]


class ClassifierStep(nn.Module):
    """One time step of a classifier: the logits for the sequence up to this step.

    Args:
        model: The classifier.
        moments: Mean and standard deviation of the features, `[2, F]`; None for tokens.
    """

    def __init__(self, model: SequenceClassifier, moments: Tensor | None) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("moments", moments)

    def forward(self, x: Tensor, state: ClassifierState) -> tuple[Tensor, ClassifierState]:
        """Maps tokens `[1, 1]` or features `[1, 1, F]` to logits `[1, 1, classes]` and the state."""
        if self.moments is not None:
            x = (x - self.moments[0]) / self.moments[1]  # type: ignore[index]
        h, memory = self.model.blocks(self.model.input_embedding(x), state.memory)
        total, steps = state.total + self.model.norm(h), state.steps + 1
        return self.model.head(total / steps), ClassifierState(memory, total, steps)


def program(model: SequenceClassifier, task: Any) -> StandaloneProgram:
    """The step of a classifier, the names of its classes, and the tokenizer of texts."""
    encoding = task.encoding
    tokenizer = None if encoding.tokenizer is None else tokenizer_of(encoding.tokenizer)
    moments = None if tokenizer else torch.as_tensor(encoding.moments)
    x = torch.zeros(1, 1, dtype=torch.long) if tokenizer else torch.zeros(1, 1, encoding.size)
    memory = model.blocks.initial_state(1)
    state = ClassifierState(memory, torch.zeros(1, 1, model.norm.normalized_shape[0]), torch.zeros(1, 1, 1))
    arguments = {"token" if tokenizer else "features": x, "state": state}
    calls = {"step": NetworkCall(ClassifierStep(model, moments).eval(), arguments, ["logits"])}
    tokens = tokenizer.text if tokenizer else b""
    return StandaloneProgram(
        main="classifier",
        calls=calls,
        text=pack("<qq", task.max_length, len(tokens)) + tokens + sized(name.encode() for name in task.classes),
        usage="./run network.weights < sequence.txt",
        in_python="fastweights classify",
        parts={"tokenizer.h": tokenizer.header} if tokenizer else {},
    )
