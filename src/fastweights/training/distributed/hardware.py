"""Hardware of training: device, precision and memory."""

import logging
import math
import os
from collections.abc import Callable

from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import nn

from fastweights.core.errors import InputError, require
from fastweights.training.distributed.fsdp import Sharded
from fastweights.training.distributed.torchrun import num_launched
from fastweights.training.run_folder.checkpoints import without_memory
from fastweights.training.settings._training import Training

for _greets in ("lightning_fabric", "torch.multiprocessing.spawn"):
    # These modules log one line per process.
    logging.getLogger(_greets).setLevel(logging.ERROR)


def make_fabric(settings: Training) -> Fabric:
    """Sets up device, precision and processes, those of torchrun if there are several; `InputError` if a device is
    missing."""
    by_torchrun = settings.devices > 1 and num_launched() > 1
    local_devices = int(os.environ["LOCAL_WORLD_SIZE"]) if by_torchrun else settings.devices
    kind = Sharded if settings.fsdp else DDPStrategy
    try:
        return Fabric(
            accelerator=settings.device,
            devices=local_devices,
            num_nodes=settings.devices // local_devices,
            strategy="auto" if settings.devices == 1 else kind(start_method="popen" if by_torchrun else "spawn"),
            precision=settings.precision,
            # Otherwise Fabric would detect the launcher of this process, such as SLURM.
            plugins=TorchElasticEnvironment() if by_torchrun else LightningEnvironment(),
        )
    except (RuntimeError, ValueError, MisconfigurationException) as error:
        got = f"{settings.devices} of '{settings.device}': {error}"
        raise InputError(f"device must be available, got {got}") from None


def build_within_memory(build: Callable[[], nn.Module]) -> nn.Module:
    """Calls `build`; `InputError` if the machine has too little memory to train the model."""
    numbers = sum(parameter.numel() for parameter in without_memory(build).parameters())
    # In float32: weights, their gradients and two moments.
    needed, available = 16 * numbers, _memory()
    got = f"one with {numbers:,} parameters, which needs {needed / 1e9:,.1f} GB"
    require(needed < available, "model", f"a model that fits into {available / 1e9:,.1f} GB", got, "Use smaller sizes.")
    return build()


def _memory() -> float:
    """Memory of this machine in bytes; infinity if unknown."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf
