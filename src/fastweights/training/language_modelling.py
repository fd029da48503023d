"""Language modelling with a state that is carried from window to window."""

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from lightning.fabric import Fabric
from rich.console import Console
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fastweights.errors import require
from fastweights.tasks._characters import Streams
from fastweights.training.checkpoint import Checkpoint, pack, restore, unpack, write_checkpoint
from fastweights.training.loop import Interrupted, resume, save_best
from fastweights.training.progress import Bar, stop_on_signal
from fastweights.training.run import LAST, Run
from fastweights.training.settings import LanguageModelling

BITS = 1 / math.log(2)


@dataclass
class Place:
    """How far a run has come: with the tensors of a checkpoint, all that it needs to go on."""

    step: int = 0
    evaluations: int = 0
    best_bits: float = math.inf
    since_best: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0

    def count(self, loss: float) -> None:
        """Another step is done."""
        self.step += 1
        self.loss_sum += loss
        self.loss_count += 1


def train(
    fabric: Fabric,
    model: nn.Module,
    streams: Streams,
    validation: Tensor,
    settings: LanguageModelling,
    run: Run,
    console: Console,
) -> None:
    """Trains `model` until `settings.steps`, or until validation no longer improves; goes on from `run` if it can.

    Leaves `last.safetensors` to go on from and `best.safetensors` with the weights that validate best. Raises
    `Interrupted` on Ctrl-C or SIGTERM, after a checkpoint.
    """
    model, optimiser = fabric.setup(model, _optimiser(model, settings))
    initial = model.initial_state(settings.batch_size)  # type: ignore[operator]
    place, carried = _resume(run, model, optimiser, initial)
    clock = Clock(settings, place.step)
    with stop_on_signal() as stop, Bar(console, settings.steps, place.step) as bar:
        while place.step < settings.steps and not _worn_out(place, settings):
            window = place.step % len(streams)
            before = carried if window else initial
            _set_learning_rate(optimiser, settings, place.step)
            loss, carried = _update(fabric, model, optimiser, streams[window], before, settings.clip)
            remedy = "Take a smaller learning_rate."
            require(math.isfinite(loss), "loss", "a number", f"{loss} after step {place.step}", remedy)
            place.count(loss)
            bar.advance(f"{loss * BITS:.2f} bits  {clock.rate(place.step):,.0f} characters/s")
            due = place.step % settings.evaluate_every == 0 or place.step == settings.steps
            line = _evaluate(model, validation, optimiser, run, place, clock) if due else ""
            # Asked once: whoever asks to stop after this is heard after the next step, and not without a checkpoint.
            stops = stop.requested
            if due or stops:
                _save(run, model, optimiser, carried, place)
            if due:
                bar.note(line)
            if stops:
                raise Interrupted(f"Stopped after step {place.step} of {settings.steps}.")


@torch.no_grad()
def bits_per_token(model: nn.Module, tokens: Tensor, window: int = 1024) -> float:
    """Mean bits a token over all but the first, read as one stream with carried state."""
    training = model.training
    model.eval()
    state, total = None, 0.0
    device = next(model.parameters()).device
    for start in range(0, len(tokens) - 1, window):
        chunk = tokens[start : start + window + 1].to(device)
        logits, state = model(chunk[None, :-1], state)
        total += cross_entropy(logits[0].float(), chunk[1:], reduction="sum").item()
    model.train(training)
    return total * BITS / (len(tokens) - 1)


class Clock:
    """Characters a second since training (re)started, evaluations included."""

    def __init__(self, settings: LanguageModelling, step: int) -> None:
        self.characters = settings.batch_size * settings.window
        self.steps = settings.steps
        self.first = step
        self.start = time.perf_counter()

    def rate(self, step: int) -> float:
        return (step - self.first) * self.characters / (time.perf_counter() - self.start)

    def left(self, step: int) -> str:
        """Time to go, as minutes and seconds."""
        seconds = (self.steps - step) * self.characters / max(self.rate(step), 1e-9)
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _optimiser(model: nn.Module, settings: LanguageModelling) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.95), fused=True)


def _set_learning_rate(optimiser: torch.optim.Optimizer, settings: LanguageModelling, step: int) -> None:
    """Linear warm-up, then half a cosine down to a tenth."""
    rise = min((step + 1) / settings.warmup, 1.0) if settings.warmup else 1.0
    fallen = max(step - settings.warmup, 0) / max(settings.steps - settings.warmup, 1)
    for group in optimiser.param_groups:
        group["lr"] = settings.learning_rate * rise * (0.55 + 0.45 * math.cos(math.pi * fallen))


def _update(
    fabric: Fabric,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    carried: Any,
    clip: float,
) -> tuple[float, Any]:
    """One update; returns the loss in nats and the state, cut off from the graph."""
    inputs, targets = (fabric.to_device(part) for part in batch)
    logits, carried = model(inputs, carried)
    loss = cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    optimiser.zero_grad()
    fabric.backward(loss)
    # A gradient that is no number makes the next loss none, which is told with a remedy.
    fabric.clip_gradients(model, optimiser, max_norm=clip, error_if_nonfinite=False)
    optimiser.step()
    return loss.item(), carried.detach()


def _evaluate(
    model: nn.Module, validation: Tensor, optimiser: torch.optim.Optimizer, run: Run, place: Place, clock: Clock
) -> str:
    """Validates, logs, keeps the best weights; returns a line to show."""
    train_bits = place.loss_sum / place.loss_count * BITS
    bits = bits_per_token(model, validation)
    place.loss_sum, place.loss_count = 0.0, 0
    place.evaluations += 1
    place.since_best = 0 if bits < place.best_bits else place.since_best + 1
    if bits < place.best_bits:
        place.best_bits = bits
        save_best(run, model, {"step": place.step, "validation_bits": bits})
    rate, left = clock.rate(place.step), clock.left(place.step)
    lr = optimiser.param_groups[0]["lr"]
    metrics = {"train_bits": train_bits, "validation_bits": bits, "learning_rate": lr}
    run.log(step=place.step, **metrics, characters_per_second=round(rate))
    line = f"step {place.step:>5}  train {train_bits:.3f}  validation {bits:.3f} bits a character"
    return f"{line}  {rate:>7,.0f} characters/s  {left} left"


def _worn_out(place: Place, settings: LanguageModelling) -> bool:
    return 0 < settings.patience <= place.since_best


def _save(run: Run, model: nn.Module, optimiser: torch.optim.Optimizer, carried: Any, place: Place) -> None:
    write_checkpoint(run.path / LAST, Checkpoint(pack(model, optimiser, carried), asdict(place)))


def _resume(run: Run, model: nn.Module, optimiser: torch.optim.Optimizer, initial: Any) -> tuple[Place, Any]:
    """Where the run stands: at the last checkpoint, or at the beginning if there is none."""
    checkpoint = resume(run)
    if checkpoint is None:
        return Place(), initial
    return restore(Place, checkpoint.facts), unpack(checkpoint.tensors, model, optimiser, initial)
