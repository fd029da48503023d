"""Action spaces: their policies against the formulas, and actions as environments take them."""

import json
import math
from itertools import product

import pytest
import torch

from fastweights import InputError
from fastweights.core.action_spaces import Box, Discrete, MultiDiscrete, read_actions

SPACES = {
    "discrete": Discrete(4),
    "multi-discrete": MultiDiscrete((3, 2, 4)),
    "binary": MultiDiscrete((2, 2)),
    "box": Box((-1.0, 0.0, -math.inf), (1.0, 10.0, math.inf)),
}
EACH = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
B = 5


def parameters(space, seed=0):
    shape = (B, space.outputs + space.learned)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, requires_grad=True)


def log_softmax(logits):
    total = math.log(sum(math.exp(value) for value in logits))
    return [value - total for value in logits]


def definition(space, row, action):
    """Log probability and entropy of one action, number by number."""
    if isinstance(space, Box):
        means, deviations = row[: len(action)], [math.exp(value) for value in row[len(action) :]]
        terms = zip(action, means, deviations, strict=True)
        log = sum(-0.5 * ((a - m) / s) ** 2 - math.log(s) - 0.5 * math.log(2 * math.pi) for a, m, s in terms)
        return log, sum(0.5 + 0.5 * math.log(2 * math.pi) + math.log(s) for s in deviations)
    sizes, choices = ((space.n,), [action]) if isinstance(space, Discrete) else (space.sizes, action)
    log = entropy = place = 0
    for size, choice in zip(sizes, choices, strict=True):
        logs = log_softmax(row[place : place + size])
        place, log = place + size, log + logs[choice]
        entropy -= sum(math.exp(value) * value for value in logs)
    return log, entropy


@EACH
def test_a_policy_is_its_formula(space):
    given = parameters(space)
    policy = space.distribution(given)
    actions = policy.sample()
    assert actions.shape == (B, *space.shape)
    rows = zip(given.tolist(), actions.tolist(), strict=True)
    wanted = torch.tensor([definition(space, row, action) for row, action in rows], dtype=torch.float64)
    torch.testing.assert_close(torch.stack([policy.log_prob(actions), policy.entropy()], -1), wanted)


@EACH
def test_no_action_is_likelier_than_the_mode(space):
    policy = space.distribution(parameters(space))
    likeliest = policy.log_prob(policy.mode)
    for _ in range(50):
        assert bool((policy.log_prob(policy.sample()) <= likeliest).all())


@pytest.mark.parametrize("space", [Discrete(4), MultiDiscrete((3, 2))], ids=["discrete", "multi-discrete"])
def test_probabilities_add_up_to_one(space):
    sizes = (space.n,) if isinstance(space, Discrete) else space.sizes
    policy = space.distribution(parameters(space))
    every = [
        torch.tensor(choice).reshape(space.shape).expand(B, *space.shape) for choice in product(*map(range, sizes))
    ]
    torch.testing.assert_close(sum(policy.log_prob(action).exp() for action in every), torch.ones(B).double())


@EACH
def test_gradients_are_finite_and_reach_every_parameter(space):
    given = parameters(space)
    policy = space.distribution(given)
    (policy.log_prob(policy.sample()) + policy.entropy()).sum().backward()
    assert bool(given.grad.isfinite().all() & (given.grad != 0).any(0).all())


@EACH
def test_an_action_is_encoded_and_blank(space):
    actions = space.distribution(parameters(space)).sample()
    assert space.encode(actions).shape == (B, space.features)
    assert (space.blank(B, 2).shape, space.blank(1).dtype) == ((B, 2, *space.shape), space.dtype)
    if not isinstance(space, Box):
        assert space.encode(actions).sum(-1).tolist() == [math.prod(space.shape)] * B


@EACH
def test_a_run_folder_tells_the_space(space):
    told = json.dumps(space.facts(), allow_nan=False)
    assert read_actions(json.loads(told)) == space


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"kind": "Disc"},
        {"kind": "Discrete"},
        {"kind": "Discrete", "n": "3"},
        {"kind": "Discrete", "n": 0},
        {"kind": "Discrete", "n": 2, "more": 1},
        {"kind": "MultiDiscrete", "sizes": []},
        {"kind": "MultiDiscrete", "sizes": [2.5]},
        {"kind": "MultiDiscrete", "sizes": 3},
        {"kind": "Box", "low": [0.0], "high": []},
        {"kind": "Box", "low": [1.0], "high": [0.0]},
        {"kind": "Box", "low": ["a"], "high": ["b"]},
        {"kind": "Box", "low": 1, "high": 2},
    ],
)
def test_what_is_no_space_is_refused(facts):
    with pytest.raises(InputError):
        read_actions(facts)


def test_bounds_hold_and_none_is_as_it_is():
    space = Box((-2.0, 0.0, -math.inf, -3.4e38, 5.0), (2.0, 10.0, math.inf, 3.4e38, math.inf))
    one = torch.ones(5)
    assert space.bounded(-one).tolist() == [-2, 0, -1, -1, 5]
    assert space.bounded(one).tolist() == [2, 10, 1, 1, 5]
    assert space.bounded(0 * one).tolist() == [0, 5, 0, 0, 5]
    assert space.bounded(-9 * one).tolist() == [-2, 0, -9, -9, 5]


def test_environments_take_what_agents_do():
    """Of every space of Gymnasium, whatever its shape, its start and its type."""
    spaces = pytest.importorskip("gymnasium", reason="needs the extra rl").spaces
    numpy = pytest.importorskip("numpy")
    from fastweights.tasks.sources.spaces import convert_space

    for space in (
        spaces.Discrete(3, start=-1),
        spaces.Discrete(700),
        spaces.MultiDiscrete([3, 2], start=[1, -5]),
        spaces.MultiDiscrete([[3, 2], [4, 1]]),
        spaces.MultiBinary(4),
        spaces.MultiBinary([2, 3]),
        spaces.Box(-2.0, 2.0, (1,)),
        spaces.Box(-numpy.inf, numpy.inf, (2, 3)),
        spaces.Box(0, 255, (2, 2), numpy.uint8),
    ):
        converted = convert_space(space)
        actions = converted.actions
        wide = 3 * torch.randn(50, actions.outputs + actions.learned, generator=torch.Generator().manual_seed(0))
        for action in converted.convert(actions.distribution(wide).sample()):
            assert space.contains(action if space.shape else action[()]), (space, action)
