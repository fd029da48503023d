"""The blocks of a model, the units of gradient checkpointing, sharding and compilation."""

from functools import partial
from importlib.util import find_spec

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The entries of its module lists that have parameters."""
    entries = [block for part in model.modules() if isinstance(part, nn.ModuleList) for block in part]
    return [
        block for block in entries if not isinstance(block, nn.ModuleList) and any(True for _ in block.parameters())
    ]


def recompute(model: nn.Module) -> None:
    """Stores only the inputs of blocks, and recomputes the rest in the backward pass, with the same dropout."""
    for block in blocks_of(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def compiles(setting: bool | None, device: torch.device) -> bool:
    """Whether blocks are compiled on a device. By default, they are on GPUs for which Triton is installed."""
    if setting is None:
        return device.type == "cuda" and find_spec("triton") is not None
    return setting


def compile_blocks(model: nn.Module) -> None:
    """Compiles each block with torch.compile, which keeps compiled programs short and similar."""
    for block in blocks_of(model):
        block.forward = torch.compile(block.forward)
