"""Where models are trained: the device, the precision, and whether there is room."""

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
from fastweights.training.distributed.torchrun import launched
from fastweights.training.run_folder.checkpoints import without_memory
from fastweights.training.settings._training import Training

for _greets in ("lightning_fabric", "torch.multiprocessing.spawn"):
    # From every process, where one line is enough.
    logging.getLogger(_greets).setLevel(logging.ERROR)


def make_fabric(settings: Training) -> Fabric:
    """Device, precision and processes, which are those of torchrun if there are several; `InputError` if the devices
    are not here."""
    by_torchrun = settings.devices > 1 and launched() > 1
    here = int(os.environ["LOCAL_WORLD_SIZE"]) if by_torchrun else settings.devices
    kind = Sharded if settings.sharded else DDPStrategy
    try:
        return Fabric(
            accelerator=settings.device,
            devices=here,
            num_nodes=settings.devices // here,
            strategy="auto" if settings.devices == 1 else kind(start_method="popen" if by_torchrun else "spawn"),
            precision=settings.precision,
            # Else whatever started this process would be asked, such as SLURM.
            plugins=TorchElasticEnvironment() if by_torchrun else LightningEnvironment(),
        )
    except (RuntimeError, ValueError, MisconfigurationException) as error:
        got = f"{settings.devices} of '{settings.device}': {error}"
        raise InputError(f"device must be one that is here, got {got}") from None


def build_within_memory(build: Callable[[], nn.Module]) -> nn.Module:
    """What `build` makes; `InputError` if this machine has no room to train it."""
    numbers = sum(parameter.numel() for parameter in without_memory(build).parameters())
    # In float32: weights, their gradients and two moments.
    needed, there = 16 * numbers, _memory()
    got = f"one with {numbers:,} parameters, which takes {needed / 1e9:,.1f} GB"
    require(needed < there, "model", f"one that fits into {there / 1e9:,.1f} GB", got, "Take smaller sizes.")
    return build()


def _memory() -> float:
    """Bytes of this machine; infinitely many where it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf
