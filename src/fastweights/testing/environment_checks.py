"""Checks of environments, one per guarantee. Each takes `make`, a function that builds the task from options."""

import hashlib
from collections.abc import Callable, Iterator

import torch

from fastweights.core.action_spaces import Actions, Discrete
from fastweights.tasks.kinds.environment import Environment, TimeStep
from fastweights.testing.refusals import assert_bad_options_are_refused

Make = Callable[..., Environment]
B, STEPS = 3, 60
SPLITS = range(3)


def played(task: Environment, seed: int = 0, split: int = 0, number: int = B) -> Iterator[TimeStep]:
    """Plays random actions from a fixed seed, and yields the observations."""
    number *= task.env_multiple
    envs, random = task.make_envs(number, seed, split), torch.Generator().manual_seed(1)
    yield envs.reset()
    for _ in range(STEPS):
        yield envs.step(_random_actions(task.actions, number, random))
    envs.close()


def _random_actions(actions: Actions, number: int, random: torch.Generator) -> torch.Tensor:
    if isinstance(actions, Discrete):
        return torch.randint(actions.n, (number,), generator=random)
    noise = torch.rand(number, actions.outputs + actions.learned, generator=random)
    return actions.distribution(noise).mode


def fingerprint(task: Environment, seed: int = 0, split: int = 0) -> str:
    """Digest of all observations of an episode."""
    digest = hashlib.sha256()
    for observed in played(task, seed, split):
        for part in observed[:3]:
            digest.update(part.numpy().tobytes())
    return digest.hexdigest()


def fingerprints(task: Environment) -> str:
    """Digest of the three splits."""
    return hashlib.sha256("".join(fingerprint(task, split=split) for split in SPLITS).encode()).hexdigest()


def check_seeds_reproduce(make: Make) -> None:
    """The same seed and the same actions give the same episodes."""
    assert fingerprint(make(), seed=3) == fingerprint(make(), seed=3), "two runs with one seed differ"


def check_seeds_and_splits_differ(make: Make) -> None:
    """Another seed and another split give other episodes."""
    task = make()
    digests = [fingerprint(task, seed, split) for seed, split in ((3, 0), (4, 0), (3, 1), (3, 2))]
    assert len(set(digests)) == len(digests), "two seeds or splits give the same episodes"


def check_shapes_and_types(make: Make) -> None:
    """Observations have the shape and dtype that the task states, one per environment."""
    task = make()
    for number in (1, B):
        for observations, reward, first, _ in played(task, number=number):
            assert observations.shape == (number * task.env_multiple, *task.shape), (
                f"observations have shape {list(observations.shape)}"
            )
            assert observations.dtype == (torch.uint8 if task.from_pixels else torch.float32), (
                f"observations are {observations.dtype}"
            )
            assert (reward.shape, reward.dtype) == (observations.shape[:1], torch.float32), (
                "rewards must be float32 [B]"
            )
            assert (first.shape, first.dtype) == (observations.shape[:1], torch.bool), "`first` must be bool [B]"
            assert bool(observations.isfinite().all() & reward.isfinite().all()), (
                "an observation or a reward is not finite"
            )


def check_first_step_begins_an_episode(make: Make) -> None:
    """The first step begins an episode and has no reward."""
    _, reward, first, _ = next(played(make()))
    assert bool(first.all()), "`first` is False at the first step"
    assert not bool(reward.any()), "the first step has a reward"


def check_observations_are_not_overwritten(make: Make) -> None:
    """A later step does not overwrite an earlier observation."""
    records = [(observed[:3], [part.clone() for part in observed[:3]]) for observed in played(make())]
    for observed, copies in records:
        assert all(torch.equal(part, copy) for part, copy in zip(observed, copies, strict=True)), (
            "an observation changes"
        )


def check_bad_options_are_refused(make: Make) -> None:
    """Options outside their range and unknown names raise an `InputError`."""
    assert_bad_options_are_refused(make)
