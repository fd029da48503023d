"""Environments equal their published rules in plain Python, and action spaces equal their formulas."""

import json
import math
import sys
from itertools import product
from types import ModuleType

import pytest
import torch

from fastweights import InputError
from fastweights.core.action_spaces import Box, Discrete, MultiDiscrete, read_actions
from fastweights.tasks.atari import Atari
from fastweights.tasks.catch import Catch
from fastweights.tasks.gymnasium_environment import GymnasiumEnvironment
from fastweights.tasks.kinds._random import TEST, TRAINING, VALIDATION
from fastweights.tasks.procgen import Procgen
from fastweights.tasks.t_maze import DOWN, LEFT, RIGHT, UP, TMaze


def bsuite_catch(column, actions, rows=10, columns=5):
    """One episode of bsuite's Catch (Osband et al. 2020): screens and the reward at the end."""
    ball_y, paddle = 0, columns // 2
    screens, reward = [], 0.0

    def screen():
        board = [[0.0] * columns for _ in range(rows)]
        board[ball_y][column] = 1.0
        board[rows - 1][paddle] = 1.0
        return board

    for action in actions:
        screens.append(screen())
        paddle = min(max(paddle + action - 1, 0), columns - 1)
        ball_y += 1
        if ball_y == rows - 1:
            reward = 1.0 if paddle == column else -1.0
            break
    return screens, reward


@pytest.mark.parametrize("seed", range(20))
def test_catch_equals_bsuite(seed):
    envs = Catch(size=10, visible_frames=0, columns=5, paddle=1).make_envs(1, seed)
    actions = torch.randint(3, (9,), generator=torch.Generator().manual_seed(seed)).tolist()
    step_result = envs.reset()
    column = int(step_result.observation[0, 0].argmax())
    screens, reward = bsuite_catch(column, actions)
    for screen, action in zip(screens, actions, strict=True):
        assert step_result.observation[0].tolist() == screen
        assert not step_result.reward.any()
        step_result = envs.step(torch.tensor([action]))
    assert bool(step_result.first)
    assert float(step_result.reward) == reward


def test_catch_equals_the_description_of_the_paper():
    """Ba et al. 2016, Sec. 4.4: N x N, a paddle of two pixels, blank after M frames, +1 or -1 after N frames."""
    task = Catch(size=16, visible_frames=3)
    envs = task.make_envs(200, 0)
    step_result = envs.reset()
    balls = step_result.observation[:, 0].argmax(1)
    assert set(balls.tolist()) == set(range(16)), "every column occurs"
    for frame in range(1, 16):
        screens = step_result.observation
        assert bool((screens.sum((1, 2)) == (3 if frame <= 3 else 0)).all())
        if frame <= 3:
            assert torch.equal(screens[:, frame - 1].argmax(1), balls)
        step_result = envs.step(torch.ones(200, dtype=torch.int64))
    # Paddles that never moved are in the middle, under columns 7 and 8.
    assert torch.equal(step_result.reward, torch.where((balls == 7) | (balls == 8), 1.0, -1.0))
    assert bool(step_result.first.all())


def test_paddle_stays_on_the_screen():
    for action, column in ((0, 0), (2, 4)):
        envs = Catch(size=8, visible_frames=0, columns=6).make_envs(4, 0)
        envs.reset()
        for _ in range(6):
            step_result = envs.step(torch.full((4,), action))
        assert bool((step_result.observation[:, -1, column : column + 2] == 1).all())


@pytest.mark.parametrize("length", [1, 5])
def test_t_maze_rewards_the_turn_of_the_sign(length):
    envs = TMaze(length).make_envs(50, 0)
    step_result = envs.reset()
    sign = step_result.observation[:, 0]
    assert set(sign.tolist()) == {-1.0, 1.0}
    for _ in range(length):
        step_result = envs.step(torch.full((50,), RIGHT))
        assert not step_result.reward.any()
        assert not step_result.observation[:, 0].any()
    assert bool((step_result.observation[:, 2] == 1).all())
    step_result = envs.step(torch.where(sign == 1, UP, DOWN))
    assert bool((step_result.reward == 1).all() & step_result.first.all())


def test_t_maze_penalises_delays_and_chance_level_is_half():
    envs = TMaze(4).make_envs(1000, 0)
    envs.reset()
    total_reward = torch.zeros(1000)
    for _ in range(4):
        total_reward += envs.step(torch.full((1000,), LEFT)).reward
    assert total_reward.tolist() == [-1.0] * 1000
    assert not envs.step(torch.full((1000,), UP)).reward.any()
    for _ in range(4):
        envs.step(torch.full((1000,), RIGHT))
    assert 0.4 < float(envs.step(torch.full((1000,), UP)).reward.mean()) < 0.6


def test_invalid_options_of_catch_are_rejected():
    with pytest.raises(InputError, match="visible_frames must be from 0 to size=4, got 5"):
        Catch(size=4, visible_frames=5)
    with pytest.raises(InputError, match="paddle must be from 1 to 4, got 5"):
        Catch(size=4, visible_frames=1, paddle=5)


@pytest.fixture
def gymnasium():
    return pytest.importorskip("gymnasium", reason="needs the extra rl")


def test_gymnasium_environment_equals_gymnasium(gymnasium):
    """The second of three environments, compared with a single one of Gymnasium, over ends of episodes."""
    envs = GymnasiumEnvironment("CartPole-v1").make_envs(3, 7)
    single = gymnasium.make("CartPole-v1")
    step_result, (observation, _) = envs.reset(), single.reset(seed=envs.seed + 1)
    random, ends = torch.Generator().manual_seed(0), 0
    for _ in range(60):
        torch.testing.assert_close(step_result.observation[1], torch.from_numpy(observation))
        actions = torch.randint(2, (3,), generator=random)
        step_result, (observation, reward, ended, cut, _) = envs.step(actions), single.step(int(actions[1]))
        assert float(step_result.reward[1]) == reward
        assert bool(step_result.first[1]) == (ended or cut)
        if ended or cut:
            observation, _ = single.reset()
            ends += 1
    assert ends


def test_discrete_observations_are_one_hot(gymnasium):
    """FrozenLake has observations of one of 16 places."""
    task = GymnasiumEnvironment("FrozenLake-v1", {"is_slippery": False})
    assert (task.shape, task.actions, task.from_pixels) == ((16,), Discrete(4), False)
    envs = task.make_envs(2, 0)
    assert envs.reset().observation.tolist() == [[1.0] + 15 * [0.0]] * 2
    assert envs.step(torch.tensor([2, 1])).observation.argmax(1).tolist() == [1, 4]


def test_unknown_environments_are_rejected(gymnasium):
    with pytest.raises(InputError, match="id must be registered in Gymnasium, got 'CartPoll-v1'"):
        _ = GymnasiumEnvironment("CartPoll-v1").shape
    with pytest.raises(InputError, match="id must be an environment of an installed package, got 'nowhere:It-v0'"):
        _ = GymnasiumEnvironment("nowhere:It-v0").shape
    pytest.importorskip("ale_py", reason="needs the extra rl")
    with pytest.raises(InputError, match=r"observations must be square images, got 210 x 160. Wrap the environment"):
        _ = GymnasiumEnvironment("ale_py:ALE/Pong-v5").shape


def test_first_action_after_a_lost_life_is_fire(gymnasium):
    """In Breakout, an agent that does nothing plays on, and loses every life."""
    pytest.importorskip("ale_py", reason="needs the extra rl")
    envs = Atari("breakout").make_envs(1, 0)
    envs.reset()
    ends = sum(int(envs.step(torch.tensor([0])).first) for _ in range(400))
    envs.close()
    assert ends >= 5


def test_error_names_the_extra_of_a_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(
        InputError, match=r"gymnasium must be installed, got the error: .* pip install 'fastweights\[rl\]'"
    ):
        _ = GymnasiumEnvironment().shape


def test_popgym_environment_by_its_id(gymnasium):
    pytest.importorskip("popgym", reason="needs popgym")
    task = GymnasiumEnvironment("popgym:popgym-RepeatPreviousEasy-v0")
    assert (task.shape, task.actions) == ((4,), Discrete(4))
    envs = task.make_envs(5, 0)
    suits, total_reward = [envs.reset().observation.argmax(1)], torch.zeros(5)
    # The right action is the suit from three steps before the current observation.
    for t in range(30):
        step_result = envs.step(suits[max(t - 3, 0)])
        assert bool((step_result.reward > 0).all()) or t < 3
        total_reward += step_result.reward
        suits.append(step_result.observation.argmax(1))
    assert bool((total_reward > 0.5).all())


@pytest.fixture
def pong(gymnasium):
    pytest.importorskip("ale_py", reason="needs the extra rl")
    return Atari("pong")


def test_atari_observations_have_the_published_shape(pong):
    assert (pong.shape, pong.actions, pong.from_pixels) == ((4, 84, 84), Discrete(6), True)
    with pytest.raises(InputError, match=r"game must be one of .* Did you mean 'pong'"):
        _ = Atari("pongg").actions


def test_episode_of_atari_is_a_life_or_a_game(gymnasium, pong):
    """Breakout has five lives; an agent that never serves loses them all, since the game continues after a life."""
    firsts, lives = {}, set()
    for episode in ("life", "game"):
        envs = Atari("breakout", episode=episode).make_envs(1, 0)
        envs.reset()
        firsts[episode] = 0
        for _ in range(400):
            firsts[episode] += int(envs.step(torch.tensor([3])).first)
            if episode == "life":
                lives.add(int(envs.info["lives"][0]))
        envs.close()
    assert lives == {1, 2, 3, 4, 5}
    assert firsts["life"] >= 5 > firsts["game"]


def test_game_of_atari_ends_after_its_number_of_frames(pong):
    """A time step has four frames; up to 30 actions without effect precede the first time step."""
    envs = Atari("pong", frames=400).make_envs(2, 0)
    envs.reset()
    ends = next(t for t in range(200) if bool(envs.step(torch.tensor([0, 0])).first.any()))
    envs.close()
    assert 60 <= ends <= 100
    with pytest.raises(InputError, match="frames must be from 1"):
        Atari("pong", frames=0)


@pytest.fixture
def envpool():
    module = pytest.importorskip("envpool", reason="needs the extra procgen")
    try:
        module.make("MazeEasy-v0", "gymnasium", num_envs=1).close()
    except ImportError as error:
        pytest.skip(str(error))


def test_procgen_environments_alternate_between_games(envpool):
    task = Procgen(("starpilot", "maze"))
    envs = task.make_envs(4, 0)
    images, _, first, _ = envs.reset()
    assert (images.shape, images.dtype, first.tolist()) == ((4, 3, 64, 64), torch.uint8, 4 * [True])
    total_reward = torch.zeros(4)
    for _ in range(100):
        total_reward += envs.step(torch.full((4,), 9)).reward
    envs.close()
    assert bool(total_reward[::2].any()), "shots of the ship had no effect"
    assert not bool(total_reward[1::2].any()), "shots had an effect in the maze"


def test_procgen_episode_starts_in_the_last_step_of_the_previous(envpool):
    """Its first image is that of the level, which is still until an action changes it."""
    envs = Procgen(("bigfish",), levels=1).make_envs(2, 0)
    start = envs.reset().observation[0]
    for _ in range(2000):
        images, _, first, _ = envs.step(torch.full((2,), 4))
        if first[0]:
            break
    envs.close()
    assert bool(first[0])
    assert torch.equal(images[0], start)


def test_splits_of_procgen_have_their_levels(monkeypatch):
    """Training and validation share levels. The three test sets are those of the paper, jointly and separately."""
    levels, fake = [], ModuleType("envpool")
    fake.make = lambda name, kind, **options: levels.append((options["start_level"], options["num_levels"]))
    monkeypatch.setitem(sys.modules, "envpool", fake)
    task = Procgen(("maze",), levels=30)
    for split in (TRAINING, VALIDATION, TEST, *task.tests.values()):
        task.make_envs(2, 0, split)
    assert levels == [(0, 30), (0, 30), (1000, 600), (1000, 200), (1200, 200), (1400, 200)]


def test_score_of_procgen_is_the_mean_over_games():
    """Two environments per game, one episode: bigfish 1 and 40 give 0.5, maze 5 and 5 give 0."""
    summary = Procgen(("bigfish", "maze")).summary(torch.tensor([[1.0, 5.0, 40.0, 5.0]]))
    assert summary == {"score": 0.25, "bigfish": 20.5, "maze": 5.0}


def test_error_names_the_packages_of_procgen(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(
        InputError, match=r"envpool must be installed, .* 'fastweights\[procgen\]', and on Debian .* libqt5gui5"
    ):
        Procgen().make_envs(6, 0)
    with pytest.raises(InputError, match="batch_size must be a multiple of 6, the games, got 4"):
        Procgen().make_envs(4, 0)
    with pytest.raises(InputError, match=r"game must be one of bigfish, .* got 'coinrun'"):
        Procgen(("coinrun",))


SPACES = {
    "discrete": Discrete(4),
    "multi-discrete": MultiDiscrete((3, 2, 4)),
    "binary": MultiDiscrete((2, 2)),
    "box": Box((-1.0, 0.0, -math.inf), (1.0, 10.0, math.inf)),
}
EACH_SPACE = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
B = 5


def parameters(space, seed=0):
    shape = (B, space.outputs + space.learned)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, requires_grad=True)


def log_softmax(logits):
    total = math.log(sum(math.exp(value) for value in logits))
    return [value - total for value in logits]


def definition(space, row, action):
    """Log probability and entropy of one action, computed number by number."""
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


@EACH_SPACE
def test_policy_equals_its_formula(space):
    numbers = parameters(space)
    policy = space.distribution(numbers)
    actions = policy.sample()
    assert actions.shape == (B, *space.shape)
    rows = zip(numbers.tolist(), actions.tolist(), strict=True)
    expected = torch.tensor([definition(space, row, action) for row, action in rows], dtype=torch.float64)
    torch.testing.assert_close(torch.stack([policy.log_prob(actions), policy.entropy()], -1), expected)


@EACH_SPACE
def test_mode_is_the_most_probable_action(space):
    policy = space.distribution(parameters(space))
    log_prob_of_mode = policy.log_prob(policy.mode)
    for _ in range(50):
        assert bool((policy.log_prob(policy.sample()) <= log_prob_of_mode).all())


@pytest.mark.parametrize("space", [Discrete(4), MultiDiscrete((3, 2))], ids=["discrete", "multi-discrete"])
def test_probabilities_add_up_to_one(space):
    sizes = (space.n,) if isinstance(space, Discrete) else space.sizes
    policy = space.distribution(parameters(space))
    actions = [
        torch.tensor(choice).reshape(space.shape).expand(B, *space.shape) for choice in product(*map(range, sizes))
    ]
    torch.testing.assert_close(sum(policy.log_prob(action).exp() for action in actions), torch.ones(B).double())


@EACH_SPACE
def test_gradients_are_finite_and_reach_every_parameter(space):
    numbers = parameters(space)
    policy = space.distribution(numbers)
    (policy.log_prob(policy.sample()) + policy.entropy()).sum().backward()
    assert bool(numbers.grad.isfinite().all() & (numbers.grad != 0).any(0).all())


@EACH_SPACE
def test_shapes_of_encoded_and_blank_actions(space):
    actions = space.distribution(parameters(space)).sample()
    assert space.encode(actions).shape == (B, space.features)
    assert (space.blank(B, 2).shape, space.blank(1).dtype) == ((B, 2, *space.shape), space.dtype)
    if not isinstance(space, Box):
        assert space.encode(actions).sum(-1).tolist() == [math.prod(space.shape)] * B


@EACH_SPACE
def test_action_space_is_restored_from_json(space):
    text = json.dumps(space.facts(), allow_nan=False)
    assert read_actions(json.loads(text)) == space


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
def test_invalid_action_space_is_rejected(facts):
    with pytest.raises(InputError):
        read_actions(facts)


def test_bounded_actions_are_within_the_bounds():
    space = Box((-2.0, 0.0, -math.inf, -3.4e38, 5.0), (2.0, 10.0, math.inf, 3.4e38, math.inf))
    one = torch.ones(5)
    assert space.bounded(-one).tolist() == [-2, 0, -1, -1, 5]
    assert space.bounded(one).tolist() == [2, 10, 1, 1, 5]
    assert space.bounded(0 * one).tolist() == [0, 5, 0, 0, 5]
    assert space.bounded(-9 * one).tolist() == [-2, 0, -9, -9, 5]


def test_spaces_of_gymnasium_contain_the_converted_actions():
    """For every space of Gymnasium, with any shape, start and dtype."""
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
