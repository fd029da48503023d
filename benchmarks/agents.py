"""Environment steps a second, learning included, by memory; and microseconds of a step of acting.

    python benchmarks/agents.py [--seconds 5]

The task is a sign, four steps of nothing and a turn: the T-maze with L = 5. 16 environments, unrolls of 64 steps,
memories of 4 heads with 16 x 16 numbers. Memories take turns, so that other work on the machine slows all of them down;
a speed is the best of its turns.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

from fastweights.models import Agent
from fastweights.registry import TASKS
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.rl.actor_critic_loss import rms_prop, update
from fastweights.training.rl.rollout_worker import RolloutWorker
from fastweights.training.settings.actor_critic import ActorCritic

MEMORIES = ("lstm", "delta-net", "recurrent-delta-net", "srwm")
ENVIRONMENTS, UNROLL, TURNS, CALLS = 16, 64, 5, 200
SETTINGS = ActorCritic(steps=1, batch_size=ENVIRONMENTS, evaluate_every=1, unroll_length=UNROLL, learning_rate=1e-3)


def learner(layer: str) -> tuple[Agent, Callable[[], None]]:
    """An agent, and what lets it act and learn for an unroll."""
    task = TASKS.load("t-maze")(length=5)
    torch.manual_seed(0)
    agent = Agent(
        *task.arguments, layer, d_model=64, num_layers=0, num_heads=1 if layer == "lstm" else 4, tell_reward=False
    )
    fabric = make_fabric(SETTINGS)
    model, optimiser = fabric.setup(agent, rms_prop(agent, SETTINGS))
    history = task.actions.blank(ENVIRONMENTS, UNROLL)
    stage = RolloutWorker(task.worlds(ENVIRONMENTS, 0), agent.initial_state(ENVIRONMENTS), history, 0)

    def learn() -> None:
        stage.taken = 0
        update(fabric, model, optimiser, stage.act(agent, UNROLL), SETTINGS)

    return agent, learn


@torch.inference_mode()
def acting(agent: nn.Module) -> float:
    """Microseconds of one step of the memory for all environments."""
    state = agent.initial_state(ENVIRONMENTS)
    x, first = torch.randn(ENVIRONMENTS, 1, 64), torch.zeros(ENVIRONMENTS, 1, dtype=torch.bool)
    size = agent.memory.input_size
    x = x[..., :size]
    start = time.perf_counter()
    for _ in range(CALLS):
        _, state = agent.memory(x, state, reset=first)
    return (time.perf_counter() - start) / CALLS * 1e6


def speed(learn: Callable[[], None], seconds: float) -> float:
    """Environment steps a second."""
    start, unrolls = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        learn()
        unrolls += 1
    return unrolls * ENVIRONMENTS * UNROLL / (time.perf_counter() - start)


def main() -> None:
    """Measures in turns, and prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0, help="of a turn of a memory, default: %(default)s")
    seconds = parser.parse_args().seconds / TURNS
    made = {layer: learner(layer) for layer in MEMORIES}
    for _, learn in made.values():
        learn()
    speeds, steps = dict.fromkeys(MEMORIES, 0.0), {layer: float("inf") for layer in MEMORIES}
    for _ in range(TURNS):
        for layer, (agent, learn) in made.items():
            speeds[layer] = max(speeds[layer], speed(learn, seconds))
            steps[layer] = min(steps[layer], acting(agent))
    print("| memory | steps a second | of the LSTM's | acting, microseconds a step |\n|---|---:|---:|---:|")
    for layer in MEMORIES:
        print(f"| {layer} | {speeds[layer]:,.0f} | {speeds[layer] / speeds['lstm']:.2f} | {steps[layer]:.0f} |")


if __name__ == "__main__":
    main()
