"""Cross entropies of flash-linear-attention."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fastweights.core.autocast import at_least_float32


def cross_entropy_loss(
    logits: Tensor,
    target: Tensor,
    label_smoothing: float = 0.0,
    logit_scale: float = 1.0,
    lse_square_scale: float = 0.0,
    logit_softcapping: float | None = None,
    ignore_index: int = -100,
    inplace_backward: bool = False,
) -> tuple[Tensor, Tensor]:
    """Losses `[N]` of logits `[N, V]`, and the part of them that keeps logsumexp small, without a gradient.

    Args:
        logits: Logits.
        target: Classes, int `[N]`.
        label_smoothing: Part of the target that is spread over all classes.
        logit_scale: Factor on the logits.
        lse_square_scale: Factor on the square of logsumexp.
        logit_softcapping: Largest absolute logit, reached by a tanh; None for no limit.
        ignore_index: Class without a loss.
        inplace_backward: Whether the gradient may overwrite the logits. It does not here.
    """
    z = at_least_float32(logits) * logit_scale
    z = z if logit_softcapping is None else logit_softcapping * torch.tanh(z / logit_softcapping)
    loss = functional.cross_entropy(
        z, target, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction="none"
    )
    extra = lse_square_scale * z.logsumexp(-1).square() * (target != ignore_index)
    return loss + extra, extra.detach()


def criterion(self: Any, input: Tensor, target: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    """`FusedCrossEntropyLoss.forward`, which refuses tensors on a CPU before it calls `cross_entropy_loss`."""
    loss, extra = cross_entropy_loss(
        input,
        target,
        self.label_smoothing,
        self.logit_scale,
        self.lse_square_scale,
        self.logit_softcapping,
        self.ignore_index,
    )
    if self.reduction != "none":
        divisor = (target != self.ignore_index).sum() if self.reduction == "mean" else 1
        loss, extra = loss.sum() / divisor, extra.sum() / divisor
    return (loss, extra) if self.return_z_loss else loss


def fused_linear_cross_entropy_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    logit_scale: float = 1.0,
    logit_softcapping: float | None = None,
    num_chunks: int = 8,
    reduction: str = "mean",
    use_l2warp: bool = False,
    l2_penalty_factor: float = 1e-4,
    accumulate_grad_in_fp32: bool = True,
) -> Tensor:
    """`cross_entropy_loss` of a linear map of x `[N, D]`, summed or averaged.

    `num_chunks` and `accumulate_grad_in_fp32` control kernels and have no effect here. With `use_l2warp` the gradient
    of the largest logit of a token grows by `l2_penalty_factor / N` times that logit.
    """
    logits = functional.linear(x, weight, bias)
    loss, _ = cross_entropy_loss(logits, target, label_smoothing, logit_scale, 0.0, logit_softcapping, ignore_index)
    total = loss.sum() / ((target != ignore_index).sum() if reduction == "mean" else 1)
    if not use_l2warp:
        return total
    penalty = 0.5 * l2_penalty_factor / len(x) * logits.amax(-1).square().sum()
    return total + penalty - penalty.detach()
