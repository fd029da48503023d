"""What all training loops share: the device, stopping on request, the best weights."""

from typing import Any, Protocol

from lightning.fabric import Fabric
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn

from fastweights.errors import InputError
from fastweights.training.checkpoint import Checkpoint, load_model, read_checkpoint, write_checkpoint
from fastweights.training.run import BEST, Run


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


def save_best(run: Run, model: nn.Module, facts: dict[str, Any]) -> None:
    """Keeps the weights that validate best so far."""
    weights = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    write_checkpoint(run.path / BEST, Checkpoint(weights, facts))


def load_best(run: Run, model: nn.Module) -> None:
    """Gives `model` the weights of the run that validated best, and puts it in evaluation mode."""
    load_model(read_checkpoint(run.path / BEST).tensors, model)
    model.eval()
