"""Training sessions: progress, evaluations, checkpoints and the end of a training loop."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import nn
from torch.utils._pytree import tree_leaves

from fastweights.core.errors import require
from fastweights.core.measurements import sort_measurements
from fastweights.core.metric import Metric
from fastweights.core.tensor_file import TensorFile, read_tensor_file, write_tensor_file
from fastweights.training.distributed.model_blocks import compile_blocks, compiles, recompute
from fastweights.training.distributed.ranks import gather, mean_over, scatter, seed_apart
from fastweights.training.progress import Bar, Interrupted, stop_on_signal
from fastweights.training.run_folder.checkpoints import last_checkpoint, resume, save_best
from fastweights.training.run_folder.progress_state import Clock, Progress
from fastweights.training.run_folder.result import METRICS, Result
from fastweights.training.run_folder.run import LAST, Run
from fastweights.training.run_folder.training_state import pack, restore, unpack

State = TypeVar("State")
NONE: Mapping[str, float] = {}


class Evaluation(NamedTuple):
    """The numbers of an evaluation, by name.

    Args:
        validation: Metrics on validation data, with the task's main metric and the loss.
        train: Metrics on training data since the last evaluation, in addition to the loss.
        test: Metrics on test data, for a curve. They do not influence training.
        facts: Other numbers to log.
    """

    validation: dict[str, float]
    train: Mapping[str, float] = NONE
    test: Mapping[str, float] = NONE
    facts: Mapping[str, float] = NONE


class Session:
    """The training of a model on a task in a run folder.

    In distributed training only rank 0 writes.

    Args:
        fabric: Device, precision and processes.
        model: The model, freshly initialised or with the weights to be measured.
        task: The task.
        settings: Settings of the loop.
        run: The run folder.
        name: Name of the model.
        begin: Creates the run folder, unless it exists.
        console: Console for progress output; None for no output.
    """

    def __init__(
        self,
        fabric: Fabric,
        model: nn.Module,
        task: Any,
        settings: Any,
        run: Run,
        name: str = "the model",
        begin: Callable[[], None] = lambda: None,
        console: Console | None = None,
    ) -> None:
        self.fabric, self.model, self.task, self.settings, self.run = fabric, model, task, settings, run
        self.name = name
        self.bare = model  # without the wrapper of distributed training
        self._begin, self._console = begin, console
        self.progress = Progress()

    def set_up(self, optimiser: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Moves model and optimiser to their device, and creates the run folder, after all arguments are checked."""
        if self.fabric.is_global_zero:
            self._begin()
        if compiles(self.settings.compile, self.fabric.device):
            compile_blocks(self.model)
        if self.settings.gradient_checkpointing:
            recompute(self.model)
        self.model, self.optimiser = self.fabric.setup(self.model, optimiser)
        seed_apart(self.fabric, self.settings.seed)
        return self.model, self.optimiser

    def resume(self, state: State) -> State:
        """Restores the last checkpoint, if there is one; returns its carried state, otherwise `state`."""
        if self.fabric.is_global_zero:
            resume(self.run)
        self.fabric.barrier()
        checkpoint = last_checkpoint(self.run)
        if checkpoint is not None:
            self.progress = restore(Progress, checkpoint.facts)
            state = unpack(scatter(self.fabric, checkpoint.tensors), self.model, self.optimiser, state)
        self.clock = Clock(self._seconds_until_evaluation(), self.progress)
        return state

    @contextmanager
    def running(self) -> Iterator[None]:
        """Shows progress, and handles requests to stop."""
        with stop_on_signal() as self._stop, Bar(self._console, self.settings.steps, self.progress.step) as self._bar:
            yield

    def count(self, loss: float, description: str = "") -> None:
        """Counts a training step; the progress bar shows `description`."""
        self.progress.count(mean_over(self.fabric, loss))
        self._bar.advance(description)

    def require_finite_loss(self, loss: float) -> None:
        """`InputError` unless the loss of a training step is finite."""
        remedy = "Use a smaller learning_rate."
        require(math.isfinite(loss), "loss", "finite", f"{loss} after step {self.progress.step}", remedy)

    def speed(self, length: int) -> str:
        """Text of the number of units of the task per second, for sequences of this length."""
        rate = self.clock.rate(self.progress.step) * self.settings.batch_size * length
        return f"{rate:,.0f} {self.task.unit}s/s"

    def remaining_time(self) -> str:
        """Text of the estimated remaining time, in minutes and seconds."""
        seconds = int((self.settings.steps - self.progress.step) / max(self.clock.rate(self.progress.step), 1e-9))
        return f"{seconds // 60}:{seconds % 60:02d} left"

    @property
    def evaluation_is_due(self) -> bool:
        """Whether it is time to evaluate."""
        return self.progress.step % self.settings.evaluate_every == 0 or self.progress.step == self.settings.steps

    def record_evaluation(self, evaluation: Evaluation, goal: bool = False, keep: bool = False) -> None:
        """Logs an evaluation, saves the best weights, and decides whether training ends.

        Args:
            evaluation: The numbers of the evaluation.
            goal: Whether the model is good enough to end training.
            keep: Whether to save these weights even if earlier ones were better.
        """
        measured = self.fabric.broadcast(evaluation.validation)
        progress, metric, first = self.progress, self.task.main_metric, self.fabric.is_global_zero
        if progress.record_evaluation(_score(metric, measured), keep):
            weights = gather(self.fabric, {f"model.{name}": part for name, part in self.model.state_dict().items()})
            if first:
                save_best(self.run, weights, {"step": progress.step, **measured})
        seconds = self.clock.evaluate()
        if first:
            train = {"loss": progress.mean_loss, **evaluation.train}
            test = {"test": evaluation.test} if evaluation.test else {}
            self.run.log(
                step=progress.step, validation=measured, train=train, **test, **evaluation.facts, seconds=seconds
            )
        progress.stopped = self._reason_to_stop(measured["loss"], goal)
        progress.loss_sum, progress.loss_count, progress.evaluations = 0.0, 0, progress.evaluations + 1

    def end_step(self, state: Any = (), note: str = "") -> None:
        """Between two training steps: writes a checkpoint if due, prints a note, and stops on request.

        Raises:
            Interrupted: A stop was requested.
        """
        # Read once: a later request is handled after the next step, with a checkpoint.
        due, stops = self.evaluation_is_due, mean_over(self.fabric, self._stop.requested) > 0
        first = self.fabric.is_global_zero
        if due or stops:
            # Zero after an evaluation, so that uninterrupted runs end with equal bytes, whatever their speed.
            self.progress.seconds = 0.0 if due else self.clock.since_evaluation()
            tensors = gather(self.fabric, pack(self.model, self.optimiser, state))
            if first:
                write_tensor_file(self.run.path / LAST, TensorFile(tensors, asdict(self.progress)))
        if first and (due or stops or self.clock.update_is_due()):
            self.run.show_progress(self.progress.step, self.clock.seconds())
        if note:
            self._bar.note(note)
        if stops:
            raise Interrupted(f"Stopped after step {self.progress.step} of {self.settings.steps}.")

    def result(
        self,
        validation: dict[str, float],
        test: Mapping[Any, float],
        baselines: dict[str, float] | None = None,
        *,
        step_seconds: float = 0.0,
    ) -> Result:
        """The result of the run, with the metrics of the saved weights.

        Args:
            validation: Metrics on validation data, by name.
            test: Metrics on test data by name, with details by `Detail` and curves by `Point`.
            baselines: The main metric of other methods on test data, by name.
            step_seconds: Seconds per time step of one sequence; 0 if not measured.
        """
        self.progress = restore(Progress, read_tensor_file(self.run.path / LAST).facts)
        remedy = "Resume it first."
        require(self.progress.evaluations > 0, "run", "a run with an evaluation", f"{self.run.path} without", remedy)
        measured = sort_measurements(test)
        return Result(
            step=self.progress.kept_step,
            steps=self.progress.step,
            stopped=self.progress.stopped,
            seconds=self._seconds_until_evaluation(),
            parameters=sum(p.numel() for p in self.model.parameters()),
            validation=validation,
            test=measured.metrics,
            curves=measured.curves,
            details=measured.details,
            baselines=baselines or {},
            state=state_size(self.model),
            step_seconds=step_seconds,
        )

    def _reason_to_stop(self, validation_loss: float, goal: bool) -> str:
        if not math.isfinite(self.progress.loss_sum + validation_loss):
            return "diverged"
        if goal:
            return "goal"
        if 0 < self.settings.patience <= self.progress.since_best:
            return "patience"
        return "steps" if self.progress.step >= self.settings.steps else ""

    def _seconds_until_evaluation(self) -> float:
        lines = self.run.metrics_at(self.progress.evaluations)
        seconds = lines[-1].get("seconds") if lines else 0.0
        got = f"{self.run.path / METRICS} with {seconds!r}"
        require(isinstance(seconds, float), METRICS, "lines with seconds", got)
        return float(seconds or 0.0)


def _score(metric: Metric, measured: dict[str, float]) -> tuple[float, float]:
    """Score of weights, where smaller is better. Weights with a NaN loss are the worst, whatever their accuracy."""
    if not math.isfinite(measured["loss"]):
        return math.inf, math.inf
    return metric.cost(measured[metric.name]), measured["loss"]


def state_size(model: nn.Module) -> int:
    """Number of values in the state of a model for one sequence; 0 without a state."""
    initial = getattr(model, "initial_state", None)
    leaves = tree_leaves(initial(1)) if initial else []
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point())
