"""A program that continues a text with a language model."""

from typing import Any

import torch

from fastweights.adapters.standalone.job import Job
from fastweights.core.errors import require
from fastweights.models import LanguageModel


def job(model: LanguageModel, task: Any) -> Job:
    """The step of a language model of characters or bytes, and its tokens as text."""
    arguments = {"token": torch.tensor([[0]]), "state": model.initial_state(1)}
    return Job(
        "language_model", arguments, ["logits"], _tokens(task.learnt), 'echo -n "Dorothy" | ./run network.weights'
    )


def _tokens(tokenizer: Any) -> bytes:
    """Every token: one byte with its size, then its text."""
    remedy = "Train with --tokenizer characters or --tokenizer bytes."
    require(tokenizer.unit in ("character", "byte"), "tokenizer", "characters or bytes", f"{tokenizer.unit}s", remedy)
    if tokenizer.unit == "byte":
        return b"".join(bytes([1, n]) for n in range(len(tokenizer)))
    pieces = [character.encode() for character in tokenizer.facts()]
    return b"".join(bytes([len(piece)]) + piece for piece in pieces)
