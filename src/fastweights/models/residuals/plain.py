"""A residual connection without LayerNorm."""

from torch import Tensor, nn


class Plain(nn.Module):
    """x + F(x)

    Source: He et al. 2016; Irie et al. 2022, self-referential weight matrices in reinforcement learning (code, where
    the parameters of a LayerNorm exist but are not used).
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def read(self, x: Tensor) -> Tensor:
        """x"""
        return x

    def join(self, x: Tensor, read: Tensor, y: Tensor) -> Tensor:
        """x + y"""
        return x + y
