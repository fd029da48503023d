"""Supervised learning of a task: validation data chooses the weights, test data is looked at once, at the end."""

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from lightning.fabric import Fabric
from torch import nn

from fastweights.errors import require
from fastweights.tasks import Batch, Task, combine
from fastweights.training.checkpoint import Checkpoint, pack, read_checkpoint, restore, unpack, write_checkpoint
from fastweights.training.loop import Interrupted, load_best, resume, save_best
from fastweights.training.progress import stop_on_signal
from fastweights.training.run import LAST, METRICS, Run
from fastweights.training.settings import Supervised

SECONDS_BETWEEN_NEWS = 1.0


@dataclass
class Place:
    """How far a run has come: with the tensors of a checkpoint, all that it needs to go on."""

    step: int = 0
    evaluations: int = 0
    seconds: float = 0.0  # since the last evaluation
    best_step: int = 0
    best: tuple[float, float] | list[float] | None = None
    since_best: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    stopped: str = ""

    def count(self, loss: float) -> None:
        """Another step is done."""
        self.step += 1
        self.loss_sum += loss
        self.loss_count += 1

    def judge(self, score: tuple[float, float]) -> bool:
        """Whether an evaluation, as a pair of which the smaller is better, is the best so far."""
        better = self.best is None or score < tuple(self.best)
        self.since_best = 0 if better else self.since_best + 1
        if better:
            self.best, self.best_step = score, self.step
        return better


class Clock:
    """Seconds of training, those before an interruption included."""

    def __init__(self, run: Run, place: Place) -> None:
        self.evaluated = _seconds_until_evaluation(run, place)
        self.before = self.evaluated + place.seconds
        self.start = time.perf_counter()
        self.next_news = 0.0

    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.start

    def evaluate(self) -> float:
        """The seconds of an evaluation that happens now."""
        self.evaluated = self.seconds()
        return self.evaluated

    def since_evaluation(self) -> float:
        return self.seconds() - self.evaluated

    def news_is_due(self) -> bool:
        """True once a second."""
        due = self.seconds() >= self.next_news
        if due:
            self.next_news = self.seconds() + SECONDS_BETWEEN_NEWS
        return due


def train(fabric: Fabric, model: nn.Module, task: Task, settings: Supervised, run: Run) -> None:
    """Trains `model` until its goal, its patience or `settings.steps` is reached; goes on from `run` if it can.

    The model maps `Batch.inputs` and the number P of answers to outputs `[B, P, output_size]`. Leaves
    `last.safetensors` to go on from, `best.safetensors` with the weights that validate best (by the task's main metric,
    then by the loss) and `metrics.jsonl`. Raises `Interrupted` on Ctrl-C or SIGTERM, after a checkpoint.
    """
    model, optimiser = fabric.setup(model, adam(model, settings))
    place = _resume(run, model, optimiser)
    clock = Clock(run, place)
    batches = task.train_batches(settings.batch_size, settings.seed, place.step)
    with stop_on_signal() as stop:
        while not place.stopped:
            place.count(update(fabric, model, optimiser, task, next(batches), settings.clip))
            due = place.step % settings.evaluate_every == 0 or place.step == settings.steps
            if due:
                _evaluate(fabric, model, task, settings, run, place, clock)
            # Asked once: whoever asks to stop after this is heard after the next step, and not without a checkpoint.
            stops = stop.requested
            if due or stops:
                # Zero after an evaluation: so runs that nothing disturbed end in the same bytes, fast or slow.
                place.seconds = 0.0 if due else clock.since_evaluation()
                write_checkpoint(run.path / LAST, Checkpoint(pack(model, optimiser, ()), asdict(place)))
            if due or stops or clock.news_is_due():
                run.show_progress(place.step, clock.seconds())
            if stops:
                raise Interrupted(f"Stopped after step {place.step} of {settings.steps}.")


def adam(model: nn.Module, settings: Supervised) -> torch.optim.Optimizer:
    """The optimiser of a run."""
    # Fused: the steps of small tensors one by one are a tenth of an update of a small model.
    return torch.optim.Adam(model.parameters(), settings.learning_rate, settings.betas, settings.epsilon, fused=True)


def finish(fabric: Fabric, model: nn.Module, task: Task, settings: Supervised, run: Run) -> None:
    """Measures the weights that validated best on validation and test data, and writes the result."""
    place = restore(Place, read_checkpoint(run.path / LAST).facts)
    load_best(run, model)
    model = fabric.setup_module(model)
    seconds = _seconds_until_evaluation(run, place)
    facts = {"step": place.best_step, "steps": place.step, "stopped": place.stopped, "seconds": seconds}
    run.write_result(
        {
            **facts,
            "parameters": sum(p.numel() for p in model.parameters()),
            "main_metric": task.main_metric,
            "validation": measure(fabric, model, task, task.validation(settings.batch_size)),
            "test": measure(fabric, model, task, task.test(settings.batch_size)),
        }
    )


@torch.no_grad()
def measure(fabric: Fabric, model: nn.Module, task: Task, batches: Iterator[Batch]) -> dict[str, float]:
    """The task's metrics over batches, by name."""
    training = model.training
    model.eval()
    parts = []
    for batch in batches:
        inputs, targets = (fabric.to_device(part) for part in batch)
        parts.append(task.metrics(model(inputs, targets.shape[1]), targets))
    model.train(training)
    return {name: mean.value for name, mean in combine(parts).items()}


def update(
    fabric: Fabric, model: nn.Module, optimiser: torch.optim.Optimizer, task: Task, batch: Batch, clip: float
) -> float:
    """One step on a batch; returns its loss."""
    inputs, targets = (fabric.to_device(part) for part in batch)
    loss = task.loss(model(inputs, targets.shape[1]), targets)
    optimiser.zero_grad()
    fabric.backward(loss)
    if clip:
        # A gradient that is no number makes the next loss none, for which training stops at the next evaluation.
        fabric.clip_gradients(model, optimiser, max_norm=clip, error_if_nonfinite=False)
    optimiser.step()
    return loss.item()


def _evaluate(
    fabric: Fabric, model: nn.Module, task: Task, settings: Supervised, run: Run, place: Place, clock: Clock
) -> None:
    """Validates, logs, keeps the best weights."""
    measured = measure(fabric, model, task, task.validation(settings.batch_size))
    main = measured[task.main_metric]
    if place.judge(_score(task, measured)):
        save_best(run, model, {"step": place.step, **measured})
    validation = {f"validation_{name}": value for name, value in measured.items()}
    train_loss = place.loss_sum / place.loss_count
    run.log(step=place.step, train_loss=train_loss, validation=main, **validation, seconds=clock.evaluate())
    place.stopped = _reason_to_stop(place, settings, measured["loss"])
    place.loss_sum, place.loss_count, place.evaluations = 0.0, 0, place.evaluations + 1


def _score(task: Task, measured: dict[str, float]) -> tuple[float, float]:
    """Smaller is better. Weights whose loss is no number are the worst, whatever their largest output hits."""
    if not math.isfinite(measured["loss"]):
        return math.inf, math.inf
    main = measured[task.main_metric]
    return main if task.main_metric == "loss" else -main, measured["loss"]


def _reason_to_stop(place: Place, settings: Supervised, validation_loss: float) -> str:
    if not math.isfinite(place.loss_sum + validation_loss):
        return "diverged"
    if validation_loss <= settings.goal:
        return "goal"
    if 0 < settings.patience <= place.since_best:
        return "patience"
    return "steps" if place.step >= settings.steps else ""


def _resume(run: Run, model: nn.Module, optimiser: torch.optim.Optimizer) -> Place:
    """Where the run stands: at the last checkpoint, or at the beginning if there is none."""
    checkpoint = resume(run)
    if checkpoint is None:
        return Place()
    unpack(checkpoint.tensors, model, optimiser, ())
    return restore(Place, checkpoint.facts)


def _seconds_until_evaluation(run: Run, place: Place) -> float:
    """Seconds of training until the last evaluation."""
    lines = run.metrics_at(place.evaluations)
    seconds = lines[-1].get("seconds") if lines else 0.0
    require(isinstance(seconds, float), METRICS, "lines with seconds", f"{run.path / METRICS} with {seconds!r}")
    return float(seconds or 0.0)
