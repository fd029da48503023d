"""The memory of Mamba-3: a state that rotates, written by the trapezoidal rule."""

from math import pi
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fastweights.signature import Angles, Decay, Rate, TensorSpec, Value, key_features

ComplexKey = Annotated[Tensor, TensorSpec("2 K", "key")]
"""Real and imaginary parts of K complex features."""


class Mamba3State(NamedTuple):
    """The complex memory, and the last association, of which the trapezoidal rule writes a second part."""

    W: Annotated[Tensor, TensorSpec("2 V K", "memory")]
    k: Annotated[Tensor, TensorSpec("2 K", "memory")]
    v: Annotated[Tensor, TensorSpec("V", "memory")]


class Mamba3Inputs(NamedTuple):
    q: ComplexKey
    k: ComplexKey
    v: Value
    angle: Angles
    decay: Decay
    rate: Rate
    trapezoid: Rate


@key_features("identity", "l2")
def mamba3(state: Mamba3State, x: Mamba3Inputs) -> tuple[Mamba3State, Value]:
    """Mamba-3: linear attention with rotations and a trapezoidal rule.

        W <- decay R (W + (1 - t) d v' k'^T) + t d v k^T
        y = Re(W q)

    v' and k' are the previous value and key. R turns complex feature i by the angle pi tanh(angle_i) dt, dt is `rate`
    and t is `trapezoid`. For t = 1 the rule is Mamba-2's (Euler), and t = 1/2 is the trapezoidal rule of second order.
    Rotations let the memory follow the parity of its inputs. The paper rotates all keys and queries by the sum of the
    angles so far, which is the same memory. It sets decay = exp(a dt); here the two are independent inputs. K complex
    features count as 2 K in the paper.

    Source: Lahoti et al. 2026 (Mamba-3, arXiv:2603.15569), its rule with one input and output; signs and scales in the
    form of the authors' code, `ops/triton/mamba3/mamba3_siso_step.py`.

    Can: fade.
    """
    last = (1 - x.trapezoid) * x.rate * _outer(state.v, state.k)
    turned = _turned(state.W + last, pi * x.angle.tanh() * x.rate)
    W = x.decay * turned + x.trapezoid * x.rate * _outer(x.v, x.k)
    return Mamba3State(W, x.k, x.v), (W * x.q.unsqueeze(-2)).sum((0, 2))


def _outer(v: Tensor, k: Tensor) -> Tensor:
    return v.unsqueeze(-1) * k.unsqueeze(-2)


def _turned(W: Tensor, angle: Tensor) -> Tensor:
    """Complex columns times exp(-i angle)."""
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([W[0] * cos + W[1] * sin, W[1] * cos - W[0] * sin])
