"""V-trace: off-policy targets of values and advantages."""

from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.core.arguments import NotNegative, checked
from fastweights.core.errors import require


class VTrace(NamedTuple):
    """Targets of the critic and advantages of the actor, `[B, T]`, without gradients."""

    targets: Tensor
    advantages: Tensor


@checked
@torch.no_grad()
def vtrace(
    log_ratios: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    last_value: Tensor,
    clip_delta: NotNegative = 1.0,
    clip_trace: NotNegative = 1.0,
    clip_advantage: NotNegative = 1.0,
) -> VTrace:
    """v_t = V_t + delta_t + gamma_t c_t (v_{t+1} - V_{t+1}), delta_t = rho_t (r_t + gamma_t V_{t+1} - V_t).

    rho_t = min(clip_delta, pi / mu) and c_t = min(clip_trace, pi / mu), for the policy pi that learns and the policy mu
    that acted. The advantage is min(clip_advantage, pi / mu) (r_t + gamma_t v_{t+1} - V_t). With pi = mu, v_t is the
    return of the remaining T - t steps plus the value of the last state.

    Source: Espeholt et al. 2018 (IMPALA), Sec. 4.1.

    Args:
        log_ratios: log pi(a_t) - log mu(a_t), `[B, T]`.
        discounts: gamma_t, 0 where action t ended an episode, `[B, T]`.
        rewards: r_t, the reward of action t, `[B, T]`.
        values: V_t, `[B, T]`.
        last_value: V_{T+1}, the value after the last action, `[B]`.
        clip_delta: Largest rho.
        clip_trace: Largest c.
        clip_advantage: Largest ratio in the advantage.

    Raises:
        InputError: the shape of a tensor differs from these.
    """
    _check(values, {"log_ratios": log_ratios, "discounts": discounts, "rewards": rewards}, last_value)
    ratios = log_ratios.exp()
    following = torch.cat([values[:, 1:], last_value[:, None]], dim=1)
    deltas = ratios.clamp(max=clip_delta) * (rewards + discounts * following - values)
    traces = discounts * ratios.clamp(max=clip_trace)
    errors = [torch.zeros_like(last_value)]
    for delta, trace in zip(reversed(deltas.unbind(1)), reversed(traces.unbind(1)), strict=True):
        errors.append(delta + trace * errors[-1])
    targets = values + torch.stack(errors[:0:-1], dim=1)
    learnt = torch.cat([targets[:, 1:], last_value[:, None]], dim=1)
    return VTrace(targets, ratios.clamp(max=clip_advantage) * (rewards + discounts * learnt - values))


def _check(values: Tensor, tensors: dict[str, Tensor], last_value: Tensor) -> None:
    """Raises `InputError` unless all tensors have the batch, and the steps if any, of `values`."""
    fits = values.ndim == 2 and values.shape[1] >= 1
    require(fits, "values", "[B, T] with T of at least 1", list(values.shape))
    for name, tensor in tensors.items():
        require(tensor.shape == values.shape, name, f"[B, T] = {list(values.shape)} like values", list(tensor.shape))
    fits = last_value.shape == values.shape[:1]
    require(fits, "last_value", f"[B] = {list(values.shape[:1])} like values", list(last_value.shape))
