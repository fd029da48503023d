"""One step of an optimiser, as all loops take it."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    # It takes seconds to import, and processes that act need none of it.
    from lightning_fabric import Fabric


def descend(
    fabric: "Fabric",
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    losses: Sequence[Callable[[], Tensor]],
    clip: float,
) -> float:
    """Goes down the gradient of a sum of losses, cut to a norm of `clip` if that is not 0; returns the sum.

    Each is computed and differentiated before the next, so that only one of them has its activations in memory.
    """
    optimiser.zero_grad()
    total = torch.zeros((), device=fabric.device)
    for place, compute in enumerate(losses, start=1):
        # Processes add up their gradients once, with those of the last.
        with fabric.no_backward_sync(model, enabled=place < len(losses)):  # type: ignore[arg-type]
            loss = compute()
            fabric.backward(loss)
        total = total + loss.detach()
    if clip:
        # A gradient that is no number makes the next loss none, which every loop looks for.
        fabric.clip_gradients(model, optimiser, max_norm=clip, error_if_nonfinite=False)
    optimiser.step()
    return total.item()


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Of the next update, for all weights."""
    for group in optimiser.param_groups:
        group["lr"] = rate


def micro_batches(batch: Iterable[Any], number: int) -> list[tuple[Any, ...]]:
    """Its rows in as many equal parts; all in one where there are fewer rows. It has tensors, or tuples of them."""
    return list(zip(*(_chunks(part, number) for part in batch), strict=True))


def _chunks(part: Any, number: int) -> Sequence[Any]:
    if isinstance(part, Tensor):
        return part.chunk(number) if len(part) >= number else (part,)
    return [type(part)(*chunk) for chunk in zip(*(_chunks(tensor, number) for tensor in part), strict=True)]
