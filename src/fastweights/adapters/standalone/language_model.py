"""A program that continues a text with a language model."""

from typing import Any

import torch
from torch import Tensor, nn

from fastweights.adapters.standalone.standalone_program import StandaloneProgram
from fastweights.adapters.standalone.tokenizer import tokenizer_of
from fastweights.compiler.network.network_call import NetworkCall
from fastweights.models import LanguageModel

CHUNK = 16
"""Time steps of a prompt that the program reads at once."""


class LanguageModelStep(nn.Module):
    """One time step of a language model.

    Args:
        model: The language model.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Maps a token `[1, 1]` and a state to the logits `[1, 1, N]` of the next one and the state."""
        return self.model(token, state)


class PromptChunk(LanguageModelStep):
    """Several time steps of a language model. The output layer, most of a word model, runs at the last one only."""

    def forward(self, token: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Maps tokens `[1, T]` and a state to the logits `[1, 1, N]` behind the last one and the state."""
        h, state = self.model.hidden(token, state)
        return self.model.output(h[:, -1:]), state


def program(model: LanguageModel, task: Any) -> StandaloneProgram:
    """The step of a language model, the step for chunks of a prompt, and the tokenizer."""
    tokenizer = tokenizer_of(task.trained_tokenizer)
    token, state = torch.zeros(1, 1, dtype=torch.long), model.initial_state(1)
    tokens = torch.zeros(1, CHUNK, dtype=torch.long)
    chunk = PromptChunk(model).eval()
    calls = {
        "step": NetworkCall(LanguageModelStep(model).eval(), {"token": token, "state": state}, ["logits"]),
        "chunk": NetworkCall(chunk, {"token": tokens, "state": state}, ["logits"], is_optional=True),
    }
    return StandaloneProgram(
        main="language_model",
        calls=calls,
        text=tokenizer.text,
        usage="printf Dorothy | ./run network.weights",
        in_python="fastweights generate",
        parts={"tokenizer.h": tokenizer.header},
    )
