"""The self-referential weight matrix with a reset at the start of every span."""

from typing import Any

from fastweights.core.arguments import Size
from fastweights.layers.srwm import SRWM
from fastweights.layers.wrappers.periodic_reset import PeriodicReset


class NoCarrySRWM(PeriodicReset):
    """SRWM layer that is reset before every `period`-th time step.

        [y, q, k, beta] = W x
        A <- A + beta_A (A q - A k) k^T, A "in" [W_y, W_q, W_k, W_beta]

    With `period=1` it is the layer of this name in the authors' code: an SRWM that never reads its own changes.

    Source: Irie et al. 2022 (arXiv:2202.05780), Sec. 4.3 ("Reset"), with 50 steps.

    Args:
        d_model: Size D of the input and the output.
        num_heads: Number of heads H. It must divide `d_model`.
        period: Number of time steps between two resets.
        feature_map: Feature map of the input, as in `SRWM`.
        backend: Backend of `scan`: "auto", "compiled", "chunkwise" or "reference".
        initial_state: Initial state, as in `SRWM`.

    Example:
        >>> import torch
        >>> layer = NoCarrySRWM(d_model=16, num_heads=2, period=5)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 8,
        period: Size = 50,
        feature_map: str = "identity",
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        super().__init__(SRWM(d_model, num_heads, feature_map, backend, initial_state), period)
