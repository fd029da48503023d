"""Layers as memories in TorchRL: single steps equal a scan, and agents learn."""

import re
from pathlib import Path

import pytest
import torch

from fastweights import InputError
from fastweights.layers import make_layer
from fastweights.testing.tolerance import error, tolerance

pytest.importorskip("torchrl", reason="needs the extra torchrl")
gymnasium = pytest.importorskip("gymnasium", reason="needs the extra rl")

from tensordict import TensorDict  # noqa: E402
from tensordict.nn import TensorDictModule, TensorDictSequential  # noqa: E402
from torchrl.collectors import Collector  # noqa: E402
from torchrl.envs import GymWrapper, InitTracker, SerialEnv, TransformedEnv  # noqa: E402
from torchrl.modules import ProbabilisticActor, ValueOperator, set_recurrent_mode  # noqa: E402
from torchrl.modules.utils import get_primers_from_module  # noqa: E402
from torchrl.objectives.value import GAE  # noqa: E402

from fastweights.adapters.torchrl import MemoryModule  # noqa: E402

LAYERS = ["delta-net", "recurrent-delta-net", "srwm", "lstm", "softmax-attention"]
D, B, T = 8, 3, 11


class Noise(gymnasium.Env):
    """Random observations in episodes of random lengths."""

    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (D,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=D).astype("float32"), {}

    def step(self, action):
        observation, _ = self.reset()
        return observation, float(action), bool(self.np_random.random() < 0.3), False, {}


def collected(layer):
    """Memory module, value network, and data of an agent with both."""
    memory = MemoryModule(make_layer(layer, D, num_heads=2), "observation", "h")
    mind = TensorDictModule(torch.nn.Linear(D, 2), ["h"], ["logits"])
    chooses = {"in_keys": ["logits"], "distribution_class": torch.distributions.Categorical, "return_log_prob": True}
    policy = TensorDictSequential(memory, ProbabilisticActor(mind, **chooses))
    value = TensorDictSequential(memory, ValueOperator(torch.nn.Linear(D, 1), in_keys=["h"]))

    def make():
        return GymWrapper(Noise(), categorical_action_encoding=True)

    env = TransformedEnv(SerialEnv(B, make), InitTracker())
    env.append_transform(get_primers_from_module(policy))
    env.set_seed(0)
    collector = Collector(
        env, policy, frames_per_batch=B * T, total_frames=2 * B * T, auto_register_policy_transforms=False
    )
    *_, data = list(collector)
    assert bool(data["is_init"][:, 1:].any()), "no episode starts inside the data"
    return memory, value, data


@pytest.mark.parametrize("layer", LAYERS)
def test_one_scan_equals_single_steps(layer):
    memory, _, data = collected(layer)
    with set_recurrent_mode(True):
        scanned = memory(data.select(*memory.in_keys))
    assert error(scanned["h"], data["h"]) <= tolerance(torch.float32).forward
    assert ("next", "memory_begun") not in scanned.keys(True), "a scan writes unused states"


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_next_values_equal_the_values_of_the_next_step(layer, shifted):
    """Includes the step after the first of an episode, which TorchRL marks as initial."""
    _, value, data = collected(layer)
    estimator = GAE(gamma=0.9, lmbda=0.9, value_network=value, shifted=shifted, deactivate_vmap=True)
    with set_recurrent_mode(True), torch.no_grad():
        estimator(data)
    running = ~data["next", "done"][:, :-1]
    following = data["next", "state_value"][:, :-1][running]
    assert error(following, data["state_value"][:, 1:][running]) <= tolerance(torch.float32).forward


def test_gradients_reach_the_start_of_an_episode_only():
    memory, _, data = collected("delta-net")
    inputs = data.select(*memory.in_keys).clone()
    inputs["observation"].requires_grad_()
    last = int(inputs["is_init"][0, :, 0].nonzero()[-1])
    with set_recurrent_mode(True):
        memory(inputs)["h"][0, -1].sum().backward()
    reached = inputs["observation"].grad[0].abs().sum(-1) > 0
    assert reached.tolist() == [t >= last for t in range(T)]


def test_an_environment_without_a_primer_is_refused():
    memory = MemoryModule(make_layer("delta-net", D, num_heads=2), "observation", "h")
    with pytest.raises(InputError, match=r"memory_W, memory_begun, is_init, got one without. Append InitTracker"):
        memory(TensorDict({"observation": torch.zeros(B, D)}, [B]))


def test_the_agent_of_the_torchrl_page_learns():
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "torchrl.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(import .*?)```", page, re.DOTALL)
    names = {"__name__": "page"}
    exec(program, names)
    assert names["share"] > 0.9
