"""The elementwise linear recurrence of the RG-LRU and of HGRN."""

from typing import Annotated, NamedTuple

from torch import Tensor

from fastweights.signature import TensorSpec, Value, ValueDecay


class LinearRecurrenceState(NamedTuple):
    h: Annotated[Tensor, TensorSpec("V", "memory")]


class LinearRecurrenceInputs(NamedTuple):
    v: Value
    decay: ValueDecay


def linear_recurrence(state: LinearRecurrenceState, x: LinearRecurrenceInputs) -> tuple[LinearRecurrenceState, Value]:
    """Linear recurrence: every component fades at its own rate.

        h <- decay * h + v
        y = h

    It is the RG-LRU with v = sqrt(1 - decay^2) * (i * x), and HGRN with v = (1 - decay) * x, for an input gate i.

    Source: De et al. 2024 (Griffin, arXiv:2402.19427), Eq. 4; Qin et al. 2023 (HGRN, arXiv:2311.04823), Eq. 5.

    Can: fade.
    """
    h = x.decay * state.h + x.v
    return LinearRecurrenceState(h), h
