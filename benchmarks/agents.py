"""Environment steps per second of training an agent, and microseconds per step of acting, for several memories.

    python benchmarks/agents.py [--seconds 5]

The task is the T-maze with L = 5, in 16 environments with rollouts of 64 steps. Memories have 4 heads with 16 x 16
numbers. Memories alternate, so that other work on the machine slows all of them down. Each speed is the best of its
rounds.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from fastweights.models import Agent
from fastweights.registry import TASKS
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.rl.actor_critic_loss import rms_prop, update
from fastweights.training.rl.rollout_worker import RolloutWorker
from fastweights.training.settings.actor_critic import ActorCritic

MEMORIES = ("lstm", "delta-net", "recurrent-delta-net", "srwm")
ENVIRONMENTS, ROLLOUT, ROUNDS, CALLS = 16, 64, 5, 200
SETTINGS = ActorCritic(steps=1, batch_size=ENVIRONMENTS, evaluate_every=1, rollout_length=ROLLOUT, learning_rate=1e-3)


def learner(layer: str) -> tuple[Agent, Callable[[], None]]:
    """An agent, and a function that acts and trains for one rollout."""
    task = TASKS.load("t-maze")(length=5)
    torch.manual_seed(0)
    heads = 1 if layer == "lstm" else 4
    shape, actions, from_pixels = task.arguments
    agent = Agent(shape, actions, from_pixels, layer, d_model=64, num_layers=0, num_heads=heads, use_last_reward=False)
    fabric = make_fabric(SETTINGS)
    model, optimiser = fabric.setup(agent, rms_prop(agent, SETTINGS))
    history = task.actions.blank(ENVIRONMENTS, ROLLOUT)
    worker = RolloutWorker(task.make_envs(ENVIRONMENTS, 0), agent.initial_state(ENVIRONMENTS), history, 0)

    def learn() -> None:
        worker.num_steps = 0
        update(fabric, model, optimiser, worker.act(agent, ROLLOUT), SETTINGS)

    return agent, learn


@torch.inference_mode()
def acting(agent: Agent) -> float:
    """Microseconds per step of the memory for all environments."""
    state = agent.initial_state(ENVIRONMENTS)
    x, first = torch.randn(ENVIRONMENTS, 1, 64), torch.zeros(ENVIRONMENTS, 1, dtype=torch.bool)
    memory: Any = agent.memory
    x = x[..., : memory.input_size]
    start = time.perf_counter()
    for _ in range(CALLS):
        _, state = memory(x, state, reset=first)
    return (time.perf_counter() - start) / CALLS * 1e6


def speed(learn: Callable[[], None], seconds: float) -> float:
    """Environment steps per second."""
    start, rollouts = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        learn()
        rollouts += 1
    return rollouts * ENVIRONMENTS * ROLLOUT / (time.perf_counter() - start)


def main() -> None:
    """Measures memories in alternation, and prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds per memory (default: %(default)s)")
    seconds = parser.parse_args().seconds / ROUNDS
    learners = {layer: learner(layer) for layer in MEMORIES}
    for _, learn in learners.values():
        learn()
    speeds, steps = dict.fromkeys(MEMORIES, 0.0), {layer: float("inf") for layer in MEMORIES}
    for _ in range(ROUNDS):
        for layer, (agent, learn) in learners.items():
            speeds[layer] = max(speeds[layer], speed(learn, seconds))
            steps[layer] = min(steps[layer], acting(agent))
    print("| memory | steps per second | relative to LSTM | acting, microseconds per step |\n|---|---:|---:|---:|")
    for layer in MEMORIES:
        print(f"| {layer} | {speeds[layer]:,.0f} | {speeds[layer] / speeds['lstm']:.2f} | {steps[layer]:.0f} |")


if __name__ == "__main__":
    main()
