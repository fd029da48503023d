"""What a loop trains, and what it needs beside an update: where it stands, evaluations, checkpoints, news, an end."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import nn
from torch.utils._pytree import tree_leaves

from fastweights.core.errors import require
from fastweights.core.measurements import sort_measurements
from fastweights.core.metric import Metric
from fastweights.core.tensor_file import TensorFile, read_tensor_file, write_tensor_file
from fastweights.training.distributed.model_blocks import compile_blocks, recompute
from fastweights.training.distributed.ranks import gather, mean_over, own, seed_apart
from fastweights.training.progress import Bar, Interrupted, stop_on_signal
from fastweights.training.run_folder.checkpoints import last_checkpoint, resume, save_best
from fastweights.training.run_folder.progress_state import Clock, Place
from fastweights.training.run_folder.result import METRICS, Result
from fastweights.training.run_folder.run import LAST, Run
from fastweights.training.run_folder.training_state import pack, restore, unpack

State = TypeVar("State")


class Session:
    """A model that learns a task in a run folder.

    Where several processes train one model, only the first writes.

    Args:
        fabric: Device, precision and processes.
        model: Freshly initialised, or with the weights that are to be measured.
        task: What it learns.
        settings: How.
        run: Where.
        name: What the model is called.
        begin: Makes the run folder, unless it is there.
        console: Where to show progress; None for nowhere.
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
        self.bare = model  # also where processes share it
        self._begin, self._console = begin, console
        self.place = Place()

    def set_up(self, optimiser: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Model and optimiser on their device. The run begins here, once nothing can be wrong with what was given."""
        if self.fabric.is_global_zero:
            self._begin()
        if self.settings.compiled:
            compile_blocks(self.model)
        if self.settings.recompute:
            recompute(self.model)
        self.model, self.optimiser = self.fabric.setup(self.model, optimiser)
        seed_apart(self.fabric, self.settings.seed)
        return self.model, self.optimiser

    def resume(self, state: State) -> State:
        """Goes on from the last checkpoint, if there is one; returns the state that was carried, else `state`."""
        if self.fabric.is_global_zero:
            resume(self.run)
        self.fabric.barrier()
        checkpoint = last_checkpoint(self.run)
        if checkpoint is not None:
            self.place = restore(Place, checkpoint.facts)
            state = unpack(own(self.fabric, checkpoint.tensors), self.model, self.optimiser, state)
        self.clock = Clock(self._seconds_until_evaluation(), self.place)
        return state

    @contextmanager
    def running(self) -> Iterator[None]:
        """Shows progress, and hears who asks to stop."""
        with stop_on_signal() as self._stop, Bar(self._console, self.settings.steps, self.place.step) as self._bar:
            yield

    def count(self, loss: float, told: str = "") -> None:
        """Another update is done; `told` stands beside the progress bar."""
        self.place.count(mean_over(self.fabric, loss))
        self._bar.advance(told)

    def require_number(self, loss: float) -> None:
        """`InputError` unless the loss of an update is finite."""
        remedy = "Take a smaller learning_rate."
        require(math.isfinite(loss), "loss", "a number", f"{loss} after step {self.place.step}", remedy)

    def speed(self, length: int) -> str:
        """How many units of the task are read a second, in sequences of this length."""
        rate = self.clock.rate(self.place.step) * self.settings.batch_size * length
        return f"{rate:,.0f} {self.task.unit}s/s"

    def left(self) -> str:
        """How long the other updates will take at this rate, in minutes and seconds."""
        seconds = int((self.settings.steps - self.place.step) / max(self.clock.rate(self.place.step), 1e-9))
        return f"{seconds // 60}:{seconds % 60:02d} left"

    @property
    def due(self) -> bool:
        """Whether it is time to evaluate."""
        return self.place.step % self.settings.evaluate_every == 0 or self.place.step == self.settings.steps

    def judge(
        self,
        measured: dict[str, float],
        facts: Mapping[str, float] | None = None,
        *,
        train: Mapping[str, float] | None = None,
        test: Mapping[str, float] | None = None,
        goal: bool = False,
        keep: bool = False,
    ) -> None:
        """Logs an evaluation on validation data, keeps the best weights, and decides whether training ends.

        Args:
            measured: Metrics on validation data by name, with the task's main metric and the loss.
            facts: Other numbers to log, by name.
            train: Metrics on training data since the last evaluation, beside the loss.
            test: Metrics on test data, for a curve. They choose nothing.
            goal: Whether the model is good enough.
            keep: Whether these weights are kept even if earlier ones were better.
        """
        measured = self.fabric.broadcast(measured)
        place, metric, first = self.place, self.task.main_metric, self.fabric.is_global_zero
        if place.judge(_score(metric, measured), keep):
            weights = gather(self.fabric, {f"model.{name}": part for name, part in self.model.state_dict().items()})
            if first:
                save_best(self.run, weights, {"step": place.step, **measured})
        seconds = self.clock.evaluate()
        if first:
            parts = {"validation": measured, "train": {"loss": place.mean_loss, **(train or {})}}
            self.run.log(step=place.step, **parts, **({"test": test} if test else {}), **(facts or {}), seconds=seconds)
        place.stopped = self._reason_to_stop(measured["loss"], goal)
        place.loss_sum, place.loss_count, place.evaluations = 0.0, 0, place.evaluations + 1

    def rest(self, state: Any = (), told: str = "") -> None:
        """Between two updates: a checkpoint where one is due, news, and an end where somebody asked for it.

        Raises:
            Interrupted: Somebody did.
        """
        # Asked once: whoever asks to stop after this is heard after the next step, and not without a checkpoint.
        due, stops = self.due, mean_over(self.fabric, self._stop.requested) > 0
        first = self.fabric.is_global_zero
        if due or stops:
            # Zero after an evaluation: so runs that nothing disturbed end in the same bytes, fast or slow.
            self.place.seconds = 0.0 if due else self.clock.since_evaluation()
            tensors = gather(self.fabric, pack(self.model, self.optimiser, state))
            if first:
                write_tensor_file(self.run.path / LAST, TensorFile(tensors, asdict(self.place)))
        if first and (due or stops or self.clock.news_is_due()):
            self.run.show_progress(self.place.step, self.clock.seconds())
        if told:
            self._bar.note(told)
        if stops:
            raise Interrupted(f"Stopped after step {self.place.step} of {self.settings.steps}.")

    def result(
        self, validation: dict[str, float], test: Mapping[Any, float], baselines: dict[str, float] | None = None
    ) -> Result:
        """The result of the run, with the metrics of the weights that it kept.

        Args:
            validation: Metrics on validation data, by name.
            test: Metrics on test data by name, with details by `Detail` and curves by `Point`.
            baselines: The main metric of other methods on test data, by name.
        """
        self.place = restore(Place, read_tensor_file(self.run.path / LAST).facts)
        remedy = "Go on with it first."
        require(self.place.evaluations > 0, "run", "one with an evaluation", f"{self.run.path} without", remedy)
        measured = sort_measurements(test)
        return Result(
            step=self.place.kept_step,
            steps=self.place.step,
            stopped=self.place.stopped,
            seconds=self._seconds_until_evaluation(),
            parameters=sum(p.numel() for p in self.model.parameters()),
            validation=validation,
            test=measured.metrics,
            curves=measured.curves,
            details=measured.details,
            baselines=baselines or {},
            state=state_size(self.model),
        )

    def _reason_to_stop(self, validation_loss: float, goal: bool) -> str:
        if not math.isfinite(self.place.loss_sum + validation_loss):
            return "diverged"
        if goal:
            return "goal"
        if 0 < self.settings.patience <= self.place.since_best:
            return "patience"
        return "steps" if self.place.step >= self.settings.steps else ""

    def _seconds_until_evaluation(self) -> float:
        lines = self.run.metrics_at(self.place.evaluations)
        seconds = lines[-1].get("seconds") if lines else 0.0
        got = f"{self.run.path / METRICS} with {seconds!r}"
        require(isinstance(seconds, float), METRICS, "lines with seconds", got)
        return float(seconds or 0.0)


def _score(metric: Metric, measured: dict[str, float]) -> tuple[float, float]:
    """Smaller is better. Weights whose loss is no number are the worst, whatever their largest output hits."""
    if not math.isfinite(measured["loss"]):
        return math.inf, math.inf
    return metric.cost(measured[metric.name]), measured["loss"]


def state_size(model: nn.Module) -> int:
    """Numbers that a model carries for one sequence; 0 if it cannot."""
    initial = getattr(model, "initial_state", None)
    leaves = tree_leaves(initial(1)) if initial else []
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point())
