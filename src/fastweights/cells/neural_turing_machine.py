"""The head of a Neural Turing Machine over its slots."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fastweights.signature import Rate, RawRate, TensorSpec, Value, ValueRate


class NeuralTuringMachineState(NamedTuple):
    """The slots, and the position of the head minus the first unit vector.

    So a state of zeros places the head on the first slot. Slots that all start equal would stay equal.
    """

    M: Annotated[Tensor, TensorSpec("16 V", "memory")]
    w: Annotated[Tensor, TensorSpec("16", "memory")]


class NeuralTuringMachineInputs(NamedTuple):
    k: Value
    v: Value
    erase: ValueRate
    strength: RawRate
    gate: Rate
    shift: Annotated[Tensor, TensorSpec("3", "value")]
    sharpness: RawRate


def neural_turing_machine(
    state: NeuralTuringMachineState, x: NeuralTuringMachineInputs
) -> tuple[NeuralTuringMachineState, Value]:
    """Neural Turing Machine: 16 slots with content-based addressing.

        w = address(M, k, w)
        M <- M * (1 - w erase^T) + w v^T
        y = M^T w

    The gate mixes addressing by content (softmax of the cosine similarities with k times a strength) with the previous
    weights w. Then w is shifted by -1, 0 or 1 slots and sharpened. The head can find a slot by content and move on from
    there.

    Source: Graves et al. 2014 (Neural Turing Machines, arXiv:1410.5401), Eqs. 2-9, with one head that writes, then
    reads.

    Can: overwrite, recur.
    """
    # The cosine, but near 0 for slots that are almost empty.
    cosine = state.M @ x.k * (state.M.square().sum(-1) * (x.k @ x.k) + 1e-2).rsqrt()
    by_content = (softplus(x.strength) * cosine).softmax(-1)
    w = x.gate * by_content + (1 - x.gate) * _at_first(state.w, 1.0)
    stay = x.shift.softmax(-1)
    w = stay[0] * w.roll(-1, 0) + stay[1] * w + stay[2] * w.roll(1, 0)
    # A power that is normalised to sum 1, as a softmax of logarithms, for stability. The constant avoids log(0).
    w = ((1 + softplus(x.sharpness)) * (w + 1e-6).log()).softmax(-1)
    M = state.M * (1 - torch.outer(w, x.erase)) + torch.outer(w, x.v)
    return NeuralTuringMachineState(M, _at_first(w, -1.0)), w @ M


def _at_first(w: Tensor, more: float) -> Tensor:
    return torch.cat([w[:1] + more, w[1:]])
