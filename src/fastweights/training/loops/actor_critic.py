"""Training of agents, actors and critics with one memory, by V-trace."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from fastweights.core.action_spaces import Actions, Discrete
from fastweights.core.measurements import Detail
from fastweights.tasks.kinds._random import VALIDATION
from fastweights.tasks.kinds.environment import Environment, VectorEnv, require_finite
from fastweights.training.constant import ConstantPolicy
from fastweights.training.eval_mode import evaluating
from fastweights.training.faults import refuse
from fastweights.training.rl.actor import MODES, ActorMode
from fastweights.training.rl.actor_critic_loss import rms_prop
from fastweights.training.run_folder.result import Result
from fastweights.training.session import Evaluation, Session
from fastweights.training.settings.actor_critic import ActorCritic

VALIDATED = {"all": VALIDATION}
"""The split of validation by name."""

MEASURED_WITH = 32
"""Number of parallel environments of an evaluation."""


def train(session: Session) -> None:
    """Trains until `steps`, or until early stopping; resumes the run if there is a checkpoint.

    The model maps observations, last rewards, last actions, firsts and a state to logits, values and the next state.
    Of a rollout only the state at its beginning is kept. No environment is in a checkpoint. Leaves `last.safetensors`
    to resume from, `best.safetensors` with the weights that are measured and `metrics.jsonl`. Raises `Interrupted` on
    Ctrl-C or SIGTERM, after a checkpoint, and `ProcessDied` where an actor died that cannot be replaced.
    """
    settings = session.settings
    mode = MODES[settings.mode]
    optimiser = rms_prop(session.model, settings)
    model, wrapped = session.set_up(optimiser)
    carried = session.resume(mode.initial_checkpoint_state(session))
    progress = session.progress
    actors: ActorMode = mode(session, model, wrapped, carried)
    with closing(actors), session.running():
        while not progress.stopped:
            session.count(actors.learn(), f"return {actors.returns.mean:.3g}")
            note = actors.events()
            if session.evaluation_is_due:
                note = f"{note}\n{_evaluate(session, actors.returns.mean)}".lstrip()
                actors.reset()
            session.end_step(actors.checkpoint_state(), note)


def finish(session: Session) -> Result:
    """Plays episodes of validation and of the test with the weights of the run, and the test with the baselines."""
    model, task, settings = session.fabric.setup_module(session.model), session.task, session.settings
    longer = replace(settings, episodes=settings.test_episodes or settings.episodes)
    validation = measure(model, task, longer, VALIDATED)
    test = measure(model, task, longer, task.tests)
    baselines = {name: measure(agent, task, longer, task.tests) for name, agent in _baselines(task, settings).items()}
    return session.result(validation, test, {name: played[task.main_metric.name] for name, played in baselines.items()})


def _baselines(task: Environment, settings: ActorCritic) -> dict[str, nn.Module | None]:
    """Random actions and, of a number of actions, the one that is best on validation data if it is always taken."""
    if not isinstance(task.actions, Discrete):
        return {"random actions": None}
    number, name = task.actions.n, task.main_metric.name
    agents = [ConstantPolicy(action, number) for action in range(number)]
    best = max(agents, key=lambda agent: measure(agent, task, settings, VALIDATED)[name])
    return {"random actions": None, "a constant action": best}


def show(session: Session, result: Result, console: Console) -> None:
    """Prints the return on test episodes, and the main metric compared with that of random actions."""
    name = session.task.main_metric.name
    console.print(
        f"return {result.test['return']:.4g} ± {result.test['interval']:.2g} (95 %) in the test; "
        f"{name} {result.test[name]:.4g}, with random actions {result.baselines['random actions']:.4g}",
        highlight=False,
    )


@torch.no_grad()
def measure(
    model: nn.Module | None, task: Environment, settings: ActorCritic, splits: Mapping[str, int]
) -> dict[Any, float]:
    """The mean return of episodes, and the half width of its 95 % interval; of random actions without a model.

    Every environment plays the same number of episodes, so that short ones are not more frequent. Each split has
    `settings.episodes` of them or more. Of several splits, the main metric of each is `Detail(METRIC, SPLIT)`.
    """
    returns = {name: _returns(model, task, settings, split) for name, split in splits.items()}
    name = task.main_metric.name
    whole: dict[Any, float] = {**_summary(task, torch.cat([*returns.values()]))}
    parts = {Detail(name, split): _summary(task, part)[name] for split, part in returns.items()}
    return whole | (parts if len(parts) > 1 else {})


def _returns(model: nn.Module | None, task: Environment, settings: ActorCritic, split: int) -> Tensor:
    """Returns `[episodes, environments]` of a split."""
    number = max(min(settings.episodes, MEASURED_WITH) // task.env_multiple, 1) * task.env_multiple
    envs = task.make_envs(number, 0, split)
    with closing(envs), evaluating(model):
        return play(model, task.actions, envs, number, settings)


def _summary(task: Environment, returns: Tensor) -> dict[str, float]:
    """Metrics of returns `[episodes, environments]`, by name."""
    mean = float(returns.mean())
    deviation = float(returns.std()) if returns.numel() > 1 else 0.0
    interval = 1.96 * deviation / returns.numel() ** 0.5
    return {"return": mean, "loss": -mean, "interval": interval, **task.summary(returns)}


def play(model: nn.Module | None, actions: Actions, envs: VectorEnv, number: int, settings: ActorCritic) -> Tensor:
    """Returns of the first episodes of every environment, `[episodes, number]`.

    Raises:
        InputError: An observation, a reward or the policy is not finite; the message names the time step.
    """
    episodes = -(-settings.episodes // number)
    device = "cpu" if model is None else next(model.parameters()).device
    state = None if model is None else model.initial_state(number)  # type: ignore[operator]
    observed, action = envs.reset(), actions.blank(number)
    returns, done = torch.zeros(episodes + 1, number, dtype=torch.float64), torch.zeros(number, dtype=torch.int64)
    rows = torch.arange(number)
    greedy = settings.greedy and model is not None
    # Separate random numbers, so that an evaluation does not change the training.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for t in range(settings.max_episode_steps * episodes):
            require_finite(observed, f"time step {t + 1} of the evaluation")
            parameters = torch.zeros(number, actions.outputs + actions.learned)
            if model is not None:
                inputs = (observed.observation, observed.reward, action, observed.first)
                parameters, state = _policy(model, [part.unsqueeze(1).to(device) for part in inputs], state, t)
            policy = actions.distribution(parameters)
            action = policy.mode if greedy else policy.sample()
            observed = envs.step(action)
            returns[done, rows] += observed.reward
            done = (done + observed.first).clamp(max=episodes)
            if bool((done == episodes).all()):
                break
    return returns[:episodes]


def _policy(model: nn.Module, inputs: list[Tensor], state: Any, t: int) -> tuple[Tensor, Any]:
    """Parameters of the policy `[B, P]` on the CPU, and the next state, after t time steps."""
    parameters, _, following = model(*inputs, state)
    if not bool(parameters.isfinite().all()):
        refuse("policy", model, inputs, state, "evaluation", before=t)
    return parameters[:, 0].cpu(), following


def _evaluate(session: Session, mean_return: float) -> str:
    """Evaluates on validation data, and returns a line to show."""
    progress, settings = session.progress, session.settings
    measured = measure(session.bare, session.task, settings, VALIDATED)
    session.record_evaluation(Evaluation(measured, train={"return": mean_return}), keep=settings.keep == "last")
    rate = session.clock.rate(progress.step) * settings.frames
    return (
        f"step {progress.step:>6}  return {mean_return:.3f} in training, {measured['return']:.3f} in validation"
        f"  {rate:,.0f} steps/s  {session.remaining_time()}"
    )
