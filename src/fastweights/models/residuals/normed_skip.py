"""LayerNorm in front of a sublayer and of what goes round it."""

from torch import Tensor, nn


class NormedSkip(nn.LayerNorm):
    """LN(x) + F(LN(x)): what the papers' language-model code calls pre-LN.

    Source: Irie et al. 2021, language models with a window of 256 (code).
    """

    def read(self, x: Tensor) -> Tensor:
        """LN(x)"""
        return self(x)

    def join(self, x: Tensor, read: Tensor, y: Tensor) -> Tensor:
        """LN(x) + y"""
        return read + y
