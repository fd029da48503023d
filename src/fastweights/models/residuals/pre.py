"""LayerNorm before the sublayer."""

from torch import Tensor, nn


class Pre(nn.LayerNorm):
    """x + F(LN(x))

    Source: Xiong et al. 2020; the algorithmic tasks and agents of Irie et al. 2021 and 2022.
    """

    def read(self, x: Tensor) -> Tensor:
        """LN(x)"""
        return self(x)

    def join(self, x: Tensor, read: Tensor, y: Tensor) -> Tensor:
        """x + y"""
        return x + y
