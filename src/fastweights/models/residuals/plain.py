"""No LayerNorm."""

from torch import Tensor, nn


class Plain(nn.Module):
    """x + F(x)

    Source: He et al. 2016; Irie et al. 2022, self-referential weight matrices in reinforcement learning (code, which
    has a LayerNorm's parameters here, but does not use them).
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def read(self, x: Tensor) -> Tensor:
        """x"""
        return x

    def join(self, x: Tensor, read: Tensor, y: Tensor) -> Tensor:
        """x + y"""
        return x + y
