"""LayerNorm before the sublayer and before the skip connection."""

from torch import Tensor, nn


class NormedSkip(nn.LayerNorm):
    """LN(x) + F(LN(x)), called pre-LN in the language-model code of the papers.

    Source: Irie et al. 2021, language models with a window of 256 (code).
    """

    def read(self, x: Tensor) -> Tensor:
        """LN(x)"""
        return self(x)

    def join(self, x: Tensor, read: Tensor, y: Tensor) -> Tensor:
        """LN(x) + y"""
        return read + y
