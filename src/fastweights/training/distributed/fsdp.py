"""Sharding of weights, gradients and optimiser state over processes, block by block: FSDP2.

Fabric's strategy for FSDP2 starts no processes and needs the optimiser later, so this one derives from that for
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
    """Every process has a shard of every matrix, and all weights of a block only while the block runs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._backward_sync_control = Unsynchronised()

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        """Shards every block, and then the rest of the model."""
        mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        for part in (*blocks_of(module), module):
            fully_shard(part, mesh=mesh)
        return module

    def setup_module_and_optimizers(
        self, module: nn.Module, optimizers: list[torch.optim.Optimizer], scheduler: Any = None
    ) -> tuple[nn.Module, list[torch.optim.Optimizer], Any]:
        """Shards the model, and replaces the weights in the optimisers by their shards."""
        whole = list(module.parameters())
        module = self.setup_module(module)
        parts = dict(zip(whole, module.parameters(), strict=True))
        for group in (group for optimiser in optimizers for group in optimiser.param_groups):
            group["params"] = [parts[parameter] for parameter in group["params"]]
        return module, optimizers, scheduler


class Unsynchronised(_BackwardSyncControl):
    """Accumulates gradients of several backward passes before they are reduced over processes."""

    @contextmanager
    def no_backward_sync(self, module: nn.Module, enabled: bool) -> Iterator[None]:
        """Disables the reduction of gradients inside the context."""
        assert isinstance(module, FSDPModule)
        module.set_requires_gradient_sync(not enabled)
        yield
