"""A program that continues a text with a language model."""

from typing import Any

import torch

from fastweights.adapters.standalone.standalone_program import StandaloneProgram
from fastweights.adapters.standalone.tokens import tokens_of
from fastweights.compiler.network.network_call import NetworkCall
from fastweights.models import LanguageModel

CHUNK = 16
"""Time steps of a prompt that the program reads at once."""


def program(model: LanguageModel, task: Any) -> StandaloneProgram:
    """The step of a language model of characters or bytes, and its tokens as text."""
    arguments = {"token": torch.tensor([[0]]), "state": model.initial_state(1)}
    chunk = arguments | {"token": torch.zeros(1, CHUNK, dtype=torch.long)}
    calls = {
        "step": NetworkCall(model, arguments, ["logits"]),
        "chunk": NetworkCall(model, chunk, ["logits"], is_optional=True),
    }
    usage = "printf Dorothy | ./run network.weights"
    return StandaloneProgram("language_model", calls, tokens_of(task.trained_tokenizer), usage, "fastweights generate")
