"""Weights, gradients and moments cut over the processes that share a training, put together block by block: FSDP2.

Fabric's own strategy for FSDP2 starts no processes and wants the optimiser afterwards, so this one is made of that for
DistributedDataParallel.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.strategy import _BackwardSyncControl
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from fastweights.training.distributed.model_blocks import blocks_of


class Sharded(DDPStrategy):
    """Every process has its part of every matrix, and all of a block's only while that is used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._backward_sync_control = Unsynchronised()

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        """Cuts every block, and then what is left."""
        mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        for part in (*blocks_of(module), module):
            fully_shard(part, mesh=mesh)
        return module

    def setup_module_and_optimizers(
        self, module: nn.Module, optimizers: list[torch.optim.Optimizer], scheduler: Any = None
    ) -> tuple[nn.Module, list[torch.optim.Optimizer], Any]:
        """The same, and optimisers of the parts in place of the whole weights."""
        whole = list(module.parameters())
        module = self.setup_module(module)
        parts = dict(zip(whole, module.parameters(), strict=True))
        for group in (group for optimiser in optimizers for group in optimiser.param_groups):
            group["params"] = [parts[parameter] for parameter in group["params"]]
        return module, optimizers, scheduler


class Unsynchronised(_BackwardSyncControl):
    """Lets gradients of several backward passes add up before processes share them."""

    @contextmanager
    def no_backward_sync(self, module: nn.Module, enabled: bool) -> Iterator[None]:
        """Fabric's name for it."""
        assert isinstance(module, FSDPModule)
        module.set_requires_gradient_sync(not enabled)
        yield
