"""LayerNorm after the sum."""

from torch import Tensor, nn


class Post(nn.LayerNorm):
    """LN(x + F(x))

    Source: Vaswani et al. 2017; the language models of Schlag et al. 2021, and those of Irie et al. 2021 with full
    context.
    """

    def read(self, x: Tensor) -> Tensor:
        """x"""
        return x

    def join(self, x: Tensor, read: Tensor, y: Tensor) -> Tensor:
        """LN(x + y)"""
        return self(x + y)
