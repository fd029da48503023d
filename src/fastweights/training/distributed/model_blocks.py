"""The blocks of a model: what is computed again, or cut over processes, one by one."""

from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """What its lists of modules hold, of what has parameters."""
    held = [block for part in model.modules() if isinstance(part, nn.ModuleList) for block in part]
    return [block for block in held if not isinstance(block, nn.ModuleList) and any(True for _ in block.parameters())]


def recompute(model: nn.Module) -> None:
    """Keeps only what goes into a block; the rest is computed again on the way back, with the same dropout."""
    for block in blocks_of(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def compile_blocks(model: nn.Module) -> None:
    """Lets torch.compile make programs of what blocks do, one by one: they are alike, and none is too long."""
    for block in blocks_of(model):
        block.forward = torch.compile(block.forward)
