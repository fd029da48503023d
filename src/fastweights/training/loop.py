"""What all training loops share: the device, stopping on request, the best weights."""

import math
import os
from collections.abc import Callable
from typing import Any, Protocol

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn

from fastweights.errors import InputError, require
from fastweights.training.checkpoint import Checkpoint, load_model, read_checkpoint, require_fits, write_checkpoint
from fastweights.training.run import BEST, LAST, Run


class Interrupted(Exception):
    """Training stopped on request, after a checkpoint."""


class Hardware(Protocol):
    """The settings that say where and in what precision to train."""

    @property
    def device(self) -> str: ...

    @property
    def precision(self) -> Any: ...


def make_fabric(settings: Hardware) -> Fabric:
    """Device and precision; `InputError` if the device is not here."""
    try:
        # Every process trains alone, whatever started it: without the plugin, SLURM and MPI would be looked for.
        alone = LightningEnvironment()
        return Fabric(accelerator=settings.device, devices=1, precision=settings.precision, plugins=alone)
    except (RuntimeError, ValueError, MisconfigurationException) as error:
        raise InputError(f"device must be one that is here, got '{settings.device}': {error}") from None


def last_checkpoint(run: Run) -> Checkpoint | None:
    """Where the run stands; None at the beginning. `InputError` if it, or the metrics until then, are damaged."""
    checkpoint = read_checkpoint(run.path / LAST) if (run.path / LAST).exists() else None
    run.metrics_at(evaluations_until(checkpoint))
    return checkpoint


def evaluations_until(checkpoint: Checkpoint | None) -> int:
    """How often a run was evaluated before a checkpoint."""
    number = checkpoint.facts.get("evaluations") if checkpoint else 0
    require(type(number) is int, "checkpoint", "one to go on from", "one without the number of evaluations")
    return int(number or 0)


def resume(run: Run) -> Checkpoint | None:
    """Where the run stands, with its metrics rewound to there; None at the beginning."""
    checkpoint = last_checkpoint(run)
    run.rewind(evaluations_until(checkpoint))
    return checkpoint


def save_best(run: Run, model: nn.Module, facts: dict[str, Any]) -> None:
    """Keeps the weights that validate best so far."""
    weights = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    write_checkpoint(run.path / BEST, Checkpoint(weights, facts))


def best_model(run: Run, build: Callable[[], nn.Module]) -> nn.Module:
    """The model that `build` makes with the weights that validated best, in evaluation mode.

    `InputError` if they are of another model, before anything is made: sizes in a run folder are whatever its author
    claims, but weights lie there.
    """
    weights = read_checkpoint(run.path / BEST).tensors
    require_fits(weights, _without_memory(build))
    model = build()
    load_model(weights, model)
    return model.eval()


def build_within_memory(build: Callable[[], nn.Module]) -> nn.Module:
    """What `build` makes; `InputError` if this machine has no room to train it."""
    numbers = sum(parameter.numel() for parameter in _without_memory(build).parameters())
    # In float32: weights, their gradients and two moments.
    needed, there = 16 * numbers, _memory()
    got = f"one with {numbers:,} parameters, which takes {needed / 1e9:,.1f} GB"
    require(needed < there, "model", f"one that fits into {there / 1e9:,.1f} GB", got, "Take smaller sizes.")
    return build()


def _without_memory(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return build()


def _memory() -> float:
    """Bytes of this machine; infinitely many where it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def load_best(run: Run, model: nn.Module) -> None:
    """Gives `model` the weights of the run that validated best, and puts it in evaluation mode."""
    load_model(read_checkpoint(run.path / BEST).tensors, model)
    model.eval()
