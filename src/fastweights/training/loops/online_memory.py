"""Online training of memory: a model reads one long text and is tested on earlier passages.

Source: Gregor 2020, Sec. 5.
"""

import math
from statistics import fmean
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import Tensor, nn

from fastweights.core.errors import require
from fastweights.core.measurements import Detail
from fastweights.state import detach
from fastweights.tasks.kinds._random import ORDER, VALIDATION, random_stream
from fastweights.training.distributed.ranks import part_of
from fastweights.training.eval_mode import evaluating
from fastweights.training.optimiser_step import set_learning_rate, step_optimiser
from fastweights.training.run_folder.result import Result
from fastweights.training.session import Evaluation, Session
from fastweights.training.settings.online_memory import OnlineMemory

BITS = 1 / math.log(2)


class TrainingPair(NamedTuple):
    """Data of a training step: inputs and targets `[B, T]` of the segment, then of the snippet."""

    inputs: Tensor
    targets: Tensor
    past_inputs: Tensor
    past_targets: Tensor


class SegmentReader:
    """Symbols `[n]` that are read in order, cyclically, one segment at a time, each with an earlier snippet."""

    def __init__(self, symbols: Tensor, settings: OnlineMemory, num_streams: int) -> None:
        minimum = settings.max_distance + settings.segment + 1
        remedy = "Use a longer text, a smaller delay or a smaller segment."
        require(len(symbols) >= minimum, "text", f"at least {minimum} symbols long", len(symbols), remedy)
        self.symbols, self.settings = symbols, settings
        self.starts = torch.arange(num_streams).unsqueeze(1) * (len(symbols) // num_streams)
        self.steps = torch.arange(settings.segment + 1)

    def pair(self, segment: int, split: int) -> TrainingPair:
        """The data of a segment, counted from 0, which depends on nothing else."""
        T = self.settings.segment
        last = (segment + 1) * T - 1
        earliest = max(last - self.settings.max_distance, 0)
        random = random_stream(self.settings.seed, split, segment)
        # Before two segments are read, only the first one is available.
        draws = random.integers(earliest, max(last - T, earliest), len(self.starts), endpoint=True)
        return TrainingPair(*self._read(segment * T), *self._read(torch.from_numpy(draws).unsqueeze(1)))

    def _read(self, offset: Tensor | int) -> tuple[Tensor, Tensor]:
        read = self.symbols[(self.starts + offset + self.steps) % len(self.symbols)]
        return read[:, :-1], read[:, 1:]


def train(session: Session) -> None:
    """Reads until `steps` segments are read; resumes the run if there is a checkpoint.

    The model maps symbols `[B, T]`, a state and `targets` `[B, T]` to losses `[B, T]` and the next state, which is
    never reset. The run folder then has `last.safetensors` to resume from, `best.safetensors` with the best weights on
    validation data, and `metrics.jsonl`. Raises `Interrupted` on Ctrl-C or SIGTERM, after a checkpoint.
    """
    fabric, task, settings = session.fabric, session.task, session.settings
    reader = SegmentReader(task.training, settings, settings.batch_size)
    for part in (task.validation, task.test, *task.unseen.values()):
        SegmentReader(part, settings, 1)
    model, optimiser = session.set_up(adam(session.model, settings))
    start = session.bare.initial_state(settings.batch_size // fabric.world_size)  # type: ignore[operator]
    state, progress = session.resume(start), session.progress
    with session.running():
        while not progress.stopped:
            parts = (fabric.to_device(part_of(fabric, part)) for part in reader.pair(progress.step, ORDER))
            set_learning_rate(optimiser, settings.learning_rate_at(progress.step))
            loss, state = update(fabric, model, optimiser, TrainingPair(*parts), state, start, settings)
            session.require_finite_loss(loss)
            session.count(loss, f"{loss * BITS:.2f} bits  {session.speed(settings.segment)}")
            note = _evaluate(session, model) if session.evaluation_is_due else ""
            session.end_step(state, note)


def finish(session: Session) -> Result:
    """Measures the best weights, and summarises the training."""
    model, task, settings = session.fabric.setup_module(session.model), session.task, session.settings
    validation, test = (measure(model, part, settings) for part in (task.validation, task.test))
    on_test_texts = {Detail("bits", name): measure(model, part, settings)["bits"] for name, part in task.unseen.items()}
    return session.result(validation, {**test, **on_test_texts, **recall_in_training(session.run.metrics(), settings)})


def show(session: Session, result: Result, console: Console) -> None:
    """Prints the recall of the training text, and of held-out texts."""
    unit, settings = session.task.unit, session.settings
    delay, early = settings.delay, min(settings.early_symbols, result.steps * settings.segment)
    lines: dict[Any, str] = {
        Detail("early", str(delay)): f"training, until {unit} {early:,}",
        Detail("final", str(delay)): "training, at its end",
        "bits": f"the last tenth, read once, up to {settings.max_distance} {unit}s ago",
        "online_bits": f"the same, prediction of the next {unit}",
        **{Detail("bits", name): f"{name}, read once" for name in session.task.unseen},
    }
    numbers = result.numbers()
    for name, words in lines.items():
        console.print(f"{numbers[name]:.3f} bits per {unit}: {words}", highlight=False)
    if unknown := getattr(session.task, "unknown", ""):
        console.print(f'Read as the "other" symbol: {" ".join(unknown)}', highlight=False, markup=False)


@torch.no_grad()
def measure(model: nn.Module, symbols: Tensor, settings: OnlineMemory) -> dict[str, float]:
    """Reads a text once, from the initial state and with fixed weights.

    "loss" and "bits" are those of the snippets, from when all of the delay is read; "online_bits" those of the text.
    """
    device = next(model.parameters()).device
    reader, start = SegmentReader(symbols, settings, 1), model.initial_state(1)  # type: ignore[operator]
    state, online_losses, losses_of_snippets = start, [], []
    with evaluating(model):
        for segment in range((len(symbols) - 1) // settings.segment):
            inputs, targets, past_inputs, past_targets = (part.to(device) for part in reader.pair(segment, VALIDATION))
            losses, state = model(inputs, state, targets=targets)
            online_losses.append(losses.mean())
            losses, replayed = model(
                past_inputs, replace_fields(state, start, settings.reset_fields), targets=past_targets
            )
            losses_of_snippets.append(losses.mean())
            state = replace_fields(replayed, state, settings.reset_fields) if settings.keep_replay else state
    first_complete = -(-(settings.max_distance + 1) // settings.segment)
    loss, online = (
        torch.stack(values[first_complete - 1 :]).double().mean().item()
        for values in (losses_of_snippets, online_losses)
    )
    return {"bits": loss * BITS, "loss": loss, "online_bits": online * BITS}


def recall_in_training(lines: list[dict[str, Any]], settings: OnlineMemory) -> dict[Detail, float]:
    """Bits per symbol of the training snippets at the delay: the means of the first `early_symbols`, and of all since
    the last but one evaluation."""
    until = settings.early_symbols / settings.segment
    losses = [line["train"]["loss"] for line in lines]
    early = [loss for line, loss in zip(lines, losses, strict=True) if line["step"] <= until] or losses[:1]
    delay = str(settings.delay)
    return {Detail("early", delay): fmean(early) * BITS, Detail("final", delay): losses[-1] * BITS}


def adam(model: nn.Module, settings: OnlineMemory) -> torch.optim.Optimizer:
    """Creates the optimiser of a run."""
    return torch.optim.Adam(model.parameters(), settings.learning_rate, settings.betas, fused=True)


def update(
    fabric: Fabric,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    pair: TrainingPair,
    state: Any,
    start: Any,
    settings: OnlineMemory,
) -> tuple[float, Any]:
    """One training step: the gradient flows through the snippet and, by the memory, through the segment before it.

    `start` is the initial state. Returns the loss of the snippet in nats, and the state without its history.
    """
    results: list[Any] = []

    def loss() -> Tensor:
        online_loss, after = model(pair.inputs, state, targets=pair.targets)
        snippet_loss, replayed = model(
            pair.past_inputs, replace_fields(after, start, settings.reset_fields), targets=pair.past_targets
        )
        results.extend(
            (
                snippet_loss.mean(),
                replace_fields(replayed, after, settings.reset_fields) if settings.keep_replay else after,
            )
        )
        return (
            results[0] + settings.online_loss_weight * online_loss.mean() if settings.online_loss_weight else results[0]
        )

    step_optimiser(fabric, model, optimiser, [loss], settings.max_grad_norm)
    return results[0].item(), detach(results[1])


def replace_fields(state: Any, other: Any, names: tuple[str, ...]) -> Any:
    """Combines two states: the fields with these names, also in nested states, come from `other`."""
    if not isinstance(state, tuple):
        return state
    fields = getattr(state, "_fields", range(len(state)))
    parts = [
        new if name in names else replace_fields(old, new, names)
        for name, old, new in zip(fields, state, other, strict=True)
    ]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def _evaluate(session: Session, model: nn.Module) -> str:
    """Evaluates on validation data; returns a line of progress."""
    progress, task = session.progress, session.task
    mean = progress.mean_loss * BITS
    measured = measure(model, task.validation, session.settings)
    session.record_evaluation(Evaluation(measured))
    past = f"{mean:.3f} bits a {task.unit} of the past, {measured['bits']:.3f} of a text read once"
    return f"step {progress.step:>6}  {past}  {session.speed(session.settings.segment)}"
