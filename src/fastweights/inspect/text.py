"""Analysis of the memories of a language model on a text."""

from typing import Any

import torch

from fastweights.core.errors import require
from fastweights.inspect.memory_trace import MemoryTrace, analyze
from fastweights.inspect.recorded_scan import record_scans


def analyze_text(model: Any, task: Any, text: str, max_tokens: int = 300) -> tuple[list[MemoryTrace], list[str]]:
    """Analyses every memory of a language model on a text.

    Args:
        model: Language model, such as the model that `fastweights.load` returns.
        task: Task with the tokenizer of the model, such as the task that `fastweights.load` returns.
        text: Text to read.
        max_tokens: Maximum number of tokens.

    Returns:
        The analysis of each memory, and the tokens as texts.

    Raises:
        InputError: no memory of the model runs by `scan`, or the text has an unknown character.
    """
    tokens = task.encode(text)[:max_tokens]
    with record_scans(model) as scans, torch.no_grad():
        model(tokens[None])
    remedy = "LSTM and attention layers run on PyTorch's own kernels."
    require(bool(scans), "model", "a model with a layer over a cell", "none", remedy)
    return [analyze(scan) for scan in scans], [task.decode(token[None]) for token in tokens]
