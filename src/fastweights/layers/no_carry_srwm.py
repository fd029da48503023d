"""The self-referential weight matrix with a reset at the start of every span."""

from typing import Any

from fastweights.core.arguments import Size
from fastweights.layers.srwm import SRWM
from fastweights.layers.wrappers.reset_every import ResetEvery


class NoCarrySRWM(ResetEvery):
    """A <- A + beta_A (A q - A k) k^T as the SRWM, reset to its start before every `steps`-th step.

    With steps = 1 it is the layer of this name in the authors' code: an SRWM that never reads its own changes.

    Source: Irie et al. 2022, Sec. 4.3 ("Reset"), where a span has 50 steps.
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 8,
        steps: Size = 50,
        feature_map: str = "identity",
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        super().__init__(SRWM(d_model, num_heads, feature_map, backend, initial_state), steps)
