"""Whether an autocast region is on: what sums over time keeps its own precision inside of it."""

from contextlib import AbstractContextManager, nullcontext

import torch


def autocasts(device: torch.device) -> bool:
    """Whether autocast is on for a device; a device without numbers has none."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """A region without autocast."""
    return torch.autocast(device.type, enabled=False) if autocasts(device) else nullcontext()
