"""V-trace against its definition as a double sum, by hand, and where it is something well known."""

import pytest
import torch

from fastweights.testing.tolerance import error, tolerance
from fastweights.training.rl.vtrace import vtrace


def definition(log_ratios, discounts, rewards, values, last_value, delta, trace, advantage):
    """Remark 1 and Eq. 1 of Espeholt et al. 2018, sum by sum, in float64."""
    B, T = rewards.shape
    V = torch.cat([values, last_value[:, None]], dim=1)
    ratios = log_ratios.exp()
    v = V.clone()
    for b in range(B):
        for s in range(T):
            for t in range(s, T):
                weight = 1.0
                for i in range(s, t):
                    weight *= float(discounts[b, i] * min(ratios[b, i], trace))
                difference = rewards[b, t] + discounts[b, t] * V[b, t + 1] - V[b, t]
                v[b, s] += weight * min(float(ratios[b, t]), delta) * difference
    gained = rewards + discounts * v[:, 1:] - values
    return v[:, :T], ratios.clamp(max=advantage) * gained


def case(B, T, seed=0):
    random = torch.Generator().manual_seed(seed)
    log_ratios, rewards, values = (torch.randn(B, T, dtype=torch.float64, generator=random) for _ in range(3))
    discounts = 0.9 * (torch.rand(B, T, dtype=torch.float64, generator=random) > 0.2)
    return log_ratios, discounts, rewards, values, torch.randn(B, dtype=torch.float64, generator=random)


@pytest.mark.parametrize(("B", "T"), [(1, 1), (1, 7), (3, 5)])
@pytest.mark.parametrize("clips", [(1.0, 1.0, 1.0), (2.0, 0.5, 1.5)])
def test_it_is_its_definition(B, T, clips):
    found = vtrace(*case(B, T), *clips)
    for one, other in zip(found, definition(*case(B, T), *clips), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_single_precision_is_near_double():
    found = vtrace(*(part.float() for part in case(4, 50)))
    for one, other in zip(found, vtrace(*case(4, 50)), strict=True):
        assert error(one, other) <= tolerance(torch.float32).forward


def test_two_steps_by_hand():
    """rho = 1/2 at the first step and 4, cut to 1, at the second; gamma = 1/2.

    delta_2 = 3 + 1/2 * 4 - 1 = 4, v_2 = 1 + 4 = 5; delta_1 = 1/2 (1 + 1/2 * 1 - 2) = -1/4,
    v_1 = 2 - 1/4 + 1/2 * 1/2 * (5 - 1) = 2.75; the advantages are 1/2 (1 + 1/2 * 5 - 2) = 0.75 and 3 + 2 - 1 = 4.
    """
    ratios = torch.tensor([[0.5, 4.0]])
    found = vtrace(ratios.log(), torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 3.0]]), torch.tensor([[2.0, 1.0]]),
                   torch.tensor([4.0]))  # fmt: skip
    assert found.targets.tolist() == [[2.75, 5.0]]
    assert found.advantages.tolist() == [[0.75, 4.0]]


def test_on_policy_it_is_the_discounted_return():
    _, discounts, rewards, values, last = case(3, 6)
    targets = vtrace(torch.zeros_like(values), discounts, rewards, values, last).targets
    wanted = last
    for t in reversed(range(6)):
        wanted = rewards[:, t] + discounts[:, t] * wanted
        torch.testing.assert_close(targets[:, t], wanted)


def test_nothing_comes_back_over_the_end_of_an_episode():
    log_ratios, discounts, rewards, values, last = case(2, 6)
    discounts[:, 2] = 0
    one = vtrace(log_ratios, discounts, rewards, values, last)
    rewards[:, 3:], values[:, 3:], log_ratios[:, 3:] = 9.0, -7.0, 1.0
    other = vtrace(log_ratios, discounts, rewards, values, last + 5)
    for before, after in zip(one, other, strict=True):
        assert torch.equal(before[:, :3], after[:, :3])
        assert not torch.equal(before[:, 3:], after[:, 3:])


def test_no_gradient_flows():
    log_ratios, *rest = case(2, 3)
    assert not vtrace(log_ratios.requires_grad_(), *rest).targets.requires_grad
