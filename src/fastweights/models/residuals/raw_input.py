"""LayerNorm of the skip connection only."""

from torch import Tensor, nn


class RawInput(nn.LayerNorm):
    """LN(x) + F(x): the input of the sublayer is not normalised.

    Source: Irie et al. 2022, self-referential weight matrices in few-shot learning (code).
    """

    def read(self, x: Tensor) -> Tensor:
        """x"""
        return x

    def join(self, x: Tensor, read: Tensor, y: Tensor) -> Tensor:
        """LN(x) + y"""
        return self(x) + y
