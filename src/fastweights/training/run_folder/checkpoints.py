"""What a run keeps of its model: where training stands, and the weights that validated best."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.core.errors import require
from fastweights.core.tensor_file import TensorFile, read_tensor_file, write_tensor_file
from fastweights.training.run_folder.run import BEST, LAST, Run
from fastweights.training.run_folder.training_state import load_model, require_fits


def last_checkpoint(run: Run) -> TensorFile | None:
    """Where the run stands; None at the beginning. `InputError` if it, or the metrics until then, are damaged."""
    checkpoint = read_tensor_file(run.path / LAST) if (run.path / LAST).exists() else None
    run.metrics_at(evaluations_until(checkpoint))
    return checkpoint


def evaluations_until(checkpoint: TensorFile | None) -> int:
    """How often a run was evaluated before a checkpoint."""
    number = checkpoint.facts.get("evaluations") if checkpoint else 0
    require(type(number) is int, "checkpoint", "one to resume from", "one without the number of evaluations")
    return int(number or 0)


def resume(run: Run) -> None:
    """Drops the metrics after the last checkpoint."""
    run.rewind(evaluations_until(last_checkpoint(run)))


def save_best(run: Run, weights: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Keeps the weights that validate best so far, named `model.*`."""
    write_tensor_file(run.path / BEST, TensorFile(weights, facts))


def best_model(run: Run, build: Callable[[], nn.Module]) -> nn.Module:
    """The model that `build` makes with the weights that validated best, in evaluation mode.

    `InputError` if they are of another model, before anything is made: sizes in a run folder are whatever its author
    claims, but weights lie there.
    """
    weights = read_tensor_file(run.path / BEST).tensors
    require_fits(weights, without_memory(build))
    model = build()
    load_model(weights, model)
    return model.eval()


def without_memory(build: Callable[[], nn.Module]) -> nn.Module:
    """The same model in names and shapes only."""
    with torch.device("meta"):
        return build()
