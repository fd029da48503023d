"""The optimiser Muon."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fastweights.core.autocast import HAS_BFLOAT16
from fastweights.core.dtensor import cut_like, whole
from fastweights.training.distributed.model_blocks import blocks_of

MOMENTUM = 0.95
POLYNOMIALS = ((8.156555, -22.483293, 15.878770), (4.042930, -2.808917, 0.500018), (3.891668, -2.772484, 0.506065))
"""Coefficients of x, x^3 and x^5 in every Newton-Schulz iteration (Amsel et al. 2025, arXiv:2505.16932).

Three of these iterations lift small singular values as much as four of Jordan et al., in three quarters of the time.
"""
MARGIN = 1.02
"""The polynomials grow fast above 1, and rounding may lift a singular value of 1."""


class Muon(torch.optim.AdamW):
    """Muon for some matrices, and AdamW for all other parameters.

        M <- mu M + (1 - mu) G
        W <- (1 - lr decay) W - lr sqrt(n) NS(mu M + (1 - mu) G)

    G is the gradient of a matrix W `[m, n]`. NS is a Newton-Schulz iteration that brings the singular values near 1,
    for every n rows separately, so that each gate of an LSTM is a matrix of its own. The factor sqrt(n) makes the root
    mean square of a step about lr, as in AdamW. A step sets the gradients of the matrices to None.

    Source: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon). The factor is that of Liu et al. 2025
    (arXiv:2502.16982), without their 0.2.

    Args:
        matrices: Matrices that Muon trains.
        others: Parameters that AdamW trains, without weight decay.
        lr: Learning rate of both.
        weight_decay: Decoupled weight decay of the matrices.
        betas: Betas of AdamW.
    """

    def __init__(
        self,
        matrices: Sequence[Tensor],
        others: Sequence[Tensor],
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
    ) -> None:
        orthogonal = {"params": matrices, "weight_decay": weight_decay, "orthogonal": True}
        rest = {"params": others, "weight_decay": 0.0, "orthogonal": False}
        super().__init__([orthogonal, rest], lr=lr, betas=betas, fused=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Takes a step; returns the loss of the closure, if there is one."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            rate = group["lr"].double() if isinstance(group["lr"], Tensor) else group["lr"]
            for matrix in group["params"] if group["orthogonal"] else ():
                self._step_matrix(matrix, rate, group["weight_decay"])
                matrix.grad = None  # so that AdamW does not change it
        super().step()
        return loss

    def _step_matrix(self, W: Tensor, lr: float | Tensor, weight_decay: float) -> None:
        if W.grad is None:
            return
        state = self.state[W]
        if not state:
            # By the names of AdamW, which asks for a step in every state that it loads.
            state |= {"step": torch.zeros((), device=W.device), "exp_avg": torch.zeros_like(W)}
        state["step"] += 1
        momentum = state["exp_avg"].lerp_(W.grad, 1 - MOMENTUM)
        blocks = whole(W.grad.lerp(momentum, MOMENTUM)).split(W.shape[1])
        direction = cut_like(torch.cat([orthogonalised(block) for block in blocks]), W)
        W.mul_(1 - lr * weight_decay)
        size = lr * W.shape[1] ** 0.5
        if isinstance(size, Tensor):
            W.addcmul_(direction, size.to(W.dtype), value=-1)
        else:
            W.sub_(direction, alpha=size)


def orthogonalised(G: Tensor) -> Tensor:
    """G `[m, n]` with singular values near 1, where m <= n.

    Products of float32 are in bfloat16 where the hardware supports it, in a third of the time.
    """
    fast = G.dtype == torch.float32 and (HAS_BFLOAT16 or G.device.type == "cuda")
    X = G.bfloat16() if fast else G
    X = X / (MARGIN * X.norm() + 1e-7)
    for a, b, c in POLYNOMIALS:
        A = X @ X.mT
        X = torch.addmm(X, torch.addmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return X.to(G.dtype)


def matrices_of(model: nn.Module) -> list[Tensor]:
    """The matrices of linear maps and of recurrent networks of `torch.nn` in the blocks of a model."""
    modules = [module for block in blocks_of(model) for module in block.modules()]
    maps = [module for module in modules if isinstance(module, nn.Linear | nn.RNNBase)]
    return list(dict.fromkeys(p for module in maps for p in module.parameters(recurse=False) if p.ndim == 2))
