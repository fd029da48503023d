"""Hopfield slots: a modern Hopfield network over slots that are written like gated slot attention."""

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.arguments import Count, checked
from fastweights.core.family import family
from fastweights.signature import RawKey, TensorSpec, Value


class HopfieldSlotsState(NamedTuple):
    keys: Annotated[Tensor, TensorSpec("8 K", "memory")]
    values: Annotated[Tensor, TensorSpec("8 V", "memory")]


class HopfieldSlotsInputs(NamedTuple):
    q: RawKey
    k: RawKey
    v: Value
    decay: Annotated[Tensor, TensorSpec("8", "decay")]


class HopfieldSlotsParams(NamedTuple):
    sharpness: Annotated[Tensor, TensorSpec("", "bias")]


@family
@checked
def make_hopfield_slots(steps: Count = 1) -> Any:
    """The step with `steps` retrieval steps per token; with 0 it is `gated_slot_attention` with a sharpness."""

    def hopfield_slots(
        state: HopfieldSlotsState, x: HopfieldSlotsInputs, params: HopfieldSlotsParams
    ) -> tuple[HopfieldSlotsState, Value]:
        """Fading slots, retrieved as in a modern Hopfield network.

            K <- a K + (1 - a) k
            V <- a V + (1 - a) v
            r <- K^T softmax(b K r)
            y = V^T softmax(b K r)

        r starts at q. Retrieval moves the query to the stored key that it is most like, as in a modern Hopfield
        network, before the values are read: noise in q matters less. There are 8 slots with their own decays a, and b =
        exp(sharpness).

        Source: Ramsauer et al. 2021 (Hopfield Networks is All You Need, arXiv:2008.02217), Eq. 3, for the retrieval.
        The paper stores patterns that are given; the slots here are written as in Zhang et al. 2024 (Gated Slot
        Attention, arXiv:2409.07146).

        Can: overwrite, fade.
        """
        new, sharpness = 1 - x.decay, params.sharpness.exp()
        keys = state.keys * x.decay.unsqueeze(-1) + torch.outer(new, x.k)
        values = state.values * x.decay.unsqueeze(-1) + torch.outer(new, x.v)
        r = x.q
        for _ in range(steps):
            r = (sharpness * (keys @ r)).softmax(-1) @ keys
        return HopfieldSlotsState(keys, values), (sharpness * (keys @ r)).softmax(-1) @ values

    return hopfield_slots


hopfield_slots = make_hopfield_slots()
