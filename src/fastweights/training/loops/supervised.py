"""Supervised learning of labelled sequences: validation data choose the weights. Test data are measured at the end, and
for a curve at every evaluation."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import Tensor, nn

from fastweights.core.measurements import sort_measurements
from fastweights.tasks.kinds.labelled import IGNORE, Batch, Labelled, Metrics, combine
from fastweights.training.distributed.ranks import mean_over, part_of
from fastweights.training.eval_mode import evaluating
from fastweights.training.optimiser_step import micro_batches, set_learning_rate, step_optimiser
from fastweights.training.run_folder.result import Result
from fastweights.training.session import Evaluation, Session
from fastweights.training.settings.supervised import Supervised
from fastweights.training.step_latency import step_latency


def train(session: Session) -> None:
    """Trains until the goal, early stopping or `steps`; resumes the run if there is a checkpoint.

    The model maps `Batch.inputs` and the number P of answers to outputs `[B, P, output_size]`. The run folder then has
    `last.safetensors` to resume from, `best.safetensors` with the best weights on validation data (by the main metric
    of the task, then by the loss), and `metrics.jsonl`. Raises `Interrupted` on Ctrl-C or SIGTERM, after a checkpoint.
    """
    fabric, task, settings = session.fabric, session.task, session.settings
    model, optimiser = session.set_up(adam(session.model, settings))
    session.resume(())
    batches = task.train_batches(settings.batch_size, settings.seed, session.progress.step)
    with session.running():
        while not session.progress.stopped:
            set_learning_rate(optimiser, settings.learning_rate_at(session.progress.step))
            loss = update(
                fabric,
                model,
                optimiser,
                task,
                next(batches),
                settings.max_grad_norm,
                settings.gradient_accumulation_steps,
            )
            session.count(loss, f"loss {loss:.3g}")
            session.end_step((), _evaluate(session, model) if session.evaluation_is_due else "")


def finish(session: Session) -> Result:
    """Measures the best weights on validation and test data."""
    fabric, task, batch_size = session.fabric, session.task, session.settings.batch_size
    model = fabric.setup_module(session.model)
    validation = sort_measurements(measure(fabric, model, task, task.validation(batch_size))).metrics
    test = measure(fabric, model, task, task.test(batch_size), task.details)
    latency = step_latency(session.model, fabric.to_device(next(task.validation(1)).inputs))
    return session.result(validation, test, task.baselines(), step_seconds=latency)


def show(session: Session, result: Result, console: Console) -> None:
    """Prints every metric on test data with the chance level, and the main one with its interval, if there is one."""
    metrics, task = result.numbers(), session.task
    interval = metrics.pop("interval", None)
    for name, value in metrics.items():
        chance = task.chance.get(str(name))
        spread = f" ± {interval:.2g}" if interval is not None and name == task.main_metric.name else ""
        chance_text = "" if chance is None else f" (chance {chance:.4g})"
        console.print(f"{str(name).replace('_', ' ')} on test data: {value:.4g}{spread}{chance_text}", highlight=False)


def adam(model: nn.Module, settings: Supervised) -> torch.optim.Optimizer:
    """Creates the optimiser of a run."""
    # Fused, since separate steps of small tensors take a tenth of a training step of a small model.
    return torch.optim.Adam(model.parameters(), settings.learning_rate, settings.betas, settings.epsilon, fused=True)


@torch.no_grad()
def measure(
    fabric: Fabric,
    model: nn.Module,
    task: Labelled,
    batches: Iterator[Batch],
    metrics: Callable[[Tensor, Tensor], Metrics] | None = None,
) -> dict[Any, float]:
    """Metrics over batches, by name; by default those of the task."""
    metrics, parts = metrics or task.metrics, []
    with evaluating(model):
        for batch in batches:
            inputs, targets = (fabric.to_device(part) for part in batch)
            parts.append(metrics(model(inputs, targets.shape[1]), targets))
    return task.summary(combine(parts))


def update(
    fabric: Fabric,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    task: Labelled,
    batch: Batch,
    max_grad_norm: float,
    gradient_accumulation_steps: int = 1,
) -> float:
    """One training step on a batch; returns its loss."""
    parts = micro_batches((fabric.to_device(part_of(fabric, part)) for part in batch), gradient_accumulation_steps)
    weights = _weights(fabric, [targets for _, targets in parts])

    def loss(part: tuple[Tensor, ...], weight: float) -> Tensor:
        inputs, targets = part
        return task.loss(model(inputs, targets.shape[1]), targets) * weight

    losses = [partial(loss, *pair) for pair in zip(parts, weights, strict=True)]
    return step_optimiser(fabric, model, optimiser, losses, max_grad_norm).item()


def _evaluate(session: Session, model: nn.Module) -> str:
    """Evaluates on validation data; returns a line of progress."""
    progress, task, settings = session.progress, session.task, session.settings
    train_loss = progress.mean_loss
    numbers = measure(session.fabric, model, task, task.validation(settings.batch_size))
    measured = sort_measurements(numbers).metrics
    session.record_evaluation(Evaluation(measured, test=_test(session, model)), goal=measured["loss"] <= settings.goal)
    validation = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in measured.items())
    rate = f"{session.clock.rate(progress.step):,.1f} updates/s  {session.remaining_time()}"
    return f"step {progress.step:>6}  train loss {train_loss:.4g}  validation {validation}  {rate}"


def _test(session: Session, model: nn.Module) -> dict[str, float]:
    """Results on test data for a curve; empty without one."""
    if not session.settings.test_curve:
        return {}
    batches = session.task.test(session.settings.batch_size)
    return sort_measurements(measure(session.fabric, model, session.task, batches)).metrics


def _weights(fabric: Fabric, parts: list[Tensor]) -> list[float]:
    """Weights of the loss of every part, so that all answers of the batch have equal weight over processes."""
    if fabric.world_size == len(parts) == 1:
        return [1.0]
    scored = [float((targets != IGNORE).sum()) for targets in parts]
    whole = mean_over(fabric, sum(scored))
    return [number / whole for number in scored]
