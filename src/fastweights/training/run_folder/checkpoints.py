"""The files of a run with tensors: the last checkpoint, and the best weights on validation data."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.core.errors import require
from fastweights.core.tensor_file import TensorFile, read_tensor_file, write_tensor_file
from fastweights.training.run_folder.run import BEST, LAST, Run
from fastweights.training.run_folder.training_state import load_model, require_fits


def last_checkpoint(run: Run) -> TensorFile | None:
    """The last checkpoint of a run; None if there is none yet.

    Raises:
        InputError: The checkpoint, or the metrics until it, are damaged.
    """
    checkpoint = read_tensor_file(run.path / LAST) if (run.path / LAST).exists() else None
    run.metrics_at(evaluations_until(checkpoint))
    return checkpoint


def evaluations_until(checkpoint: TensorFile | None) -> int:
    """The number of evaluations of a run before a checkpoint."""
    number = checkpoint.facts.get("evaluations") if checkpoint else 0
    require(type(number) is int, "checkpoint", "complete", "one without the number of evaluations")
    return int(number or 0)


def resume(run: Run) -> None:
    """Drops the metrics after the last checkpoint."""
    run.rewind(evaluations_until(last_checkpoint(run)))


def save_best(run: Run, weights: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Saves the best weights so far, named `model.*`."""
    write_tensor_file(run.path / BEST, TensorFile(weights, facts))


def best_model(run: Run, build: Callable[[], nn.Module]) -> nn.Module:
    """The model from `build` with the best weights on validation data, in evaluation mode.

    The check of shapes comes before the model: a run folder from another author may state any size, but its weights
    have to exist.

    Raises:
        InputError: The weights belong to another model.
    """
    weights = read_tensor_file(run.path / BEST).tensors
    require_fits(weights, without_memory(build))
    model = build()
    load_model(weights, model)
    return model.eval()


def without_memory(build: Callable[[], nn.Module]) -> nn.Module:
    """The model from `build` on the meta device: names and shapes without memory."""
    with torch.device("meta"):
        return build()
