"""The benchmark of `agents.py` with TorchRL's collector and loss, for TorchRL's LSTM and a memory of this library.

    python benchmarks/agents_torchrl.py [--seconds 5]

The task is the T-maze with L = 5, in 16 environments with rollouts of 64 steps. One update of actor and critic follows
each rollout. The script uses one thread. Agents alternate, so that other work on the machine slows all of them
down. Each speed is the best of its rounds.
"""

import argparse
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper, InitTracker, TransformedEnv
from torchrl.modules import ActorValueOperator, LSTMModule, ProbabilisticActor, ValueOperator, set_recurrent_mode
from torchrl.objectives import A2CLoss
from torchrl.objectives.value import GAE

from agents import ENVIRONMENTS, ROLLOUT, ROUNDS, learner, speed
from fastweights.adapters.torchrl import MemoryModule
from fastweights.layers import make_layer

SIZE = 64


class Sign(gymnasium.Env):
    """T-maze: a sign, four empty observations, then a turn that is right or wrong."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.sign, self.time = self.np_random.integers(2), 0
        return np.array([2 * self.sign - 1], np.float32), {}

    def step(self, turn: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        over = self.time == 5
        return np.zeros(1, np.float32), float(over and turn == self.sign), over, False, {}


def memory(name: str) -> LSTMModule | MemoryModule:
    """TorchRL's LSTM, or a layer of this library as a TorchRL module."""
    if name == "LSTMModule":
        return LSTMModule(input_size=SIZE, hidden_size=SIZE, in_key="x", out_key="h")
    return MemoryModule(make_layer(name, SIZE, num_heads=4), in_key="x", out_key="h")


def torchrl_learner(name: str) -> Callable[[], None]:
    """Function that collects a rollout and trains on it."""
    torch.manual_seed(0)
    recurrent = memory(name)
    encoder = TensorDictModule(nn.Linear(1, SIZE), ["observation"], ["x"])
    choice = {"distribution_class": torch.distributions.Categorical, "return_log_prob": True}
    actor = ProbabilisticActor(TensorDictModule(nn.Linear(SIZE, 2), ["h"], ["logits"]), ["logits"], **choice)
    critic = ValueOperator(nn.Linear(SIZE, 1), in_keys=["h"])
    agent = ActorValueOperator(TensorDictSequential(encoder, recurrent), actor, critic)
    policy, value = agent.get_policy_operator(), agent.get_value_operator()
    environments = gymnasium.vector.SyncVectorEnv(
        [Sign] * ENVIRONMENTS, autoreset_mode=gymnasium.vector.AutoresetMode.DISABLED
    )
    env = TransformedEnv(GymWrapper(environments, categorical_action_encoding=True), InitTracker())
    env.append_transform(recurrent.make_tensordict_primer())
    frames = ENVIRONMENTS * ROLLOUT
    rollouts = iter(
        Collector(env, policy, frames_per_batch=frames, total_frames=-1, auto_register_policy_transforms=False)
    )
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=value, shifted=True)
    loss = A2CLoss(policy, value)
    optimiser = torch.optim.RMSprop(loss.parameters(), 1e-3)

    def learn() -> None:
        data = next(rollouts)
        with set_recurrent_mode(True):
            with torch.no_grad():
                advantage(data)
            optimiser.zero_grad()
            losses = loss(data)
            (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
            optimiser.step()

    return learn


def main() -> None:
    """Measures agents in alternation, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds per agent (default: %(default)s)")
    seconds = parser.parse_args().seconds / ROUNDS
    torch.set_num_threads(1)
    agents = {f"TorchRL, {name}": torchrl_learner(name) for name in ("LSTMModule", "delta-net")}
    agents |= {f"fastweights, {name}": learner(name)[1] for name in ("lstm", "delta-net")}
    for learn in agents.values():
        learn()
    speeds = dict.fromkeys(agents, 0.0)
    for _ in range(ROUNDS):
        for agent, learn in agents.items():
            speeds[agent] = max(speeds[agent], speed(learn, seconds))
    print("| agent | steps per second |\n|---|---:|")
    for agent, rate in speeds.items():
        print(f"| {agent} | {rate:,.0f} |")


if __name__ == "__main__":
    main()
