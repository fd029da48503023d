"""One optimiser step, shared by all loops."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    # It takes seconds to import, and actor processes do not need it.
    from lightning_fabric import Fabric


def step_optimiser(
    fabric: "Fabric",
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    losses: Sequence[Callable[[], Tensor]],
    max_grad_norm: float,
) -> Tensor:
    """Takes an optimiser step on a sum of losses, with the gradient clipped to norm `max_grad_norm` unless 0; returns
    the sum.

    Each loss is computed and differentiated before the next, so that only one has its activations in memory. The sum
    stays on the device, so that the host does not wait for it.
    """
    optimiser.zero_grad()
    total = torch.zeros((), device=fabric.device)
    for number, compute in enumerate(losses, start=1):
        # Processes reduce their gradients once, after the last loss.
        with fabric.no_backward_sync(model, enabled=number < len(losses)):  # type: ignore[arg-type]
            loss = compute()
            fabric.backward(loss)
        total = total + loss.detach()
    if max_grad_norm:
        # A NaN gradient makes the next loss NaN, which every loop checks.
        fabric.clip_gradients(model, optimiser, max_norm=max_grad_norm, error_if_nonfinite=False)
    optimiser.step()
    return total


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of the next training step for all weights."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def make_capturable(optimiser: torch.optim.Optimizer, device: torch.device) -> None:
    """Lets a CUDA graph contain the steps of an optimiser, with learning rates that are tensors on the device."""
    for group in optimiser.param_groups:
        group["lr"] = torch.tensor(group["lr"], device=device)
        group["capturable"] = True


def micro_batches(batch: Iterable[Any], number: int) -> list[tuple[Any, ...]]:
    """Splits a batch of tensors, or of tuples of them, into `number` equal parts; into one if it has fewer rows."""
    return list(zip(*(_chunks(part, number) for part in batch), strict=True))


def _chunks(part: Any, number: int) -> Sequence[Any]:
    if isinstance(part, Tensor):
        return part.chunk(number) if len(part) >= number else (part,)
    return [type(part)(*chunk) for chunk in zip(*(_chunks(tensor, number) for tensor in part), strict=True)]
