"""Training on the next-token prediction of a stream that is read window by window."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from lightning_fabric import Fabric
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from fastweights.core.errors import require
from fastweights.core.measurements import Detail, Point
from fastweights.state import detach, select
from fastweights.training.distributed.ranks import part_of
from fastweights.training.eval_mode import evaluating
from fastweights.training.graphed import CudaGraphs, Graphed
from fastweights.training.muon import Muon, matrices_of
from fastweights.training.optimiser_step import make_capturable, micro_batches, set_learning_rate, step_optimiser
from fastweights.training.run_folder.result import Result
from fastweights.training.session import Evaluation, Session
from fastweights.training.settings.language_modelling import LanguageModelling

BITS = 1 / math.log(2)

TOKENS_PER_BATCH = 1 << 14
"""Number of tokens per batch of independent windows."""


def train(session: Session) -> None:
    """Trains until `steps`, or until early stopping; resumes the run if there is a checkpoint.

    The model maps tokens `[B, T]`, a state and `targets` `[B, T]` to losses `[B, T]` and the next state. The run folder
    then has `last.safetensors` to resume from, `best.safetensors` with the best weights on validation data, and
    `metrics.jsonl`. Raises `Interrupted` on Ctrl-C or SIGTERM, after a checkpoint.
    """
    fabric, task, settings = session.fabric, session.task, session.settings
    windows = task.windows(settings.batch_size, settings.window)
    for part, tokens in {"validation": task.validation, "test": task.test}.items():
        require(len(tokens) >= 2, f"{part} part", f"at least 2 {task.unit}s long", len(tokens), "Use more of the text.")
    if settings.test_mem_lens:
        _layers_with_mem_len(session.model)
    graphs = CudaGraphs(fabric.device) if settings.cuda_graph else None
    model, optimiser = session.set_up(make_optimiser(session.model, settings))
    step = _training_step(session, graphs)
    # An empty tuple carries no state.
    rows = settings.batch_size // fabric.world_size
    like = session.bare.initial_state(rows) if settings.carry_state else ()  # type: ignore[operator]
    carried, progress = session.resume(like), session.progress
    with session.running():
        while not progress.stopped:
            window = progress.step % len(windows)
            set_learning_rate(optimiser, settings.learning_rate_at(progress.step))
            before = carried if settings.carry_state and window else None
            batch = fabric.to_device(part_of(fabric, windows[window]))
            total, after = step(batch, before)
            loss, carried = total.item(), after if settings.carry_state else ()
            session.require_finite_loss(loss)
            session.count(loss, f"{loss * BITS:.2f} bits  {session.speed(settings.window)}")
            note = _evaluate(session, model) if session.evaluation_is_due else ""
            session.end_step(carried, note)


def finish(session: Session) -> Result:
    """Measures the best weights on one stream or, without a carried state, by a sliding window."""
    model, task, settings = session.fabric.setup_module(session.model), session.task, session.settings
    validation, test = (measure(model, part, settings, settings.stride) for part in (task.validation, task.test))
    by_mem_len = {}
    for steps in settings.test_mem_lens:
        with mem_len_of(model, steps):
            measured = measure(model, task.test, settings, settings.stride)
        by_mem_len[Detail(task.main_metric.name, str(steps))] = measured[task.main_metric.name]
    norms = state_norms(model, task.test, settings.state_every) if settings.state_every else {}
    return session.result(validation, {**test, **by_mem_len, **norms}, task.baselines())


@contextmanager
def mem_len_of(model: nn.Module, steps: int) -> Iterator[None]:
    """Sets `mem_len` of layers such as Transformer-XL, inside of the context."""
    layers = _layers_with_mem_len(model)
    before = [layer.mem_len for layer in layers]
    try:
        for layer in layers:
            layer.mem_len = steps
        yield
    finally:
        for layer, mem_len in zip(layers, before, strict=True):
            layer.mem_len = mem_len


def _layers_with_mem_len(model: nn.Module) -> list[Any]:
    layers = [layer for layer in model.modules() if hasattr(layer, "mem_len")]
    requirement, remedy = "empty without layers with mem_len", "Such a layer is transformer-xl."
    require(bool(layers), "test_mem_lens", requirement, "some", remedy)
    return layers


def show(session: Session, result: Result, console: Console) -> None:
    """Prints the results on held-out text, best last, the best baseline that is beaten, and a sample."""
    task, name = session.task, session.name
    metric = task.main_metric
    own_value = result.test[metric.name]
    table = Table("", f"{metric.name} per {task.unit}", title="Held-out text", title_justify="left")
    for row, value in sorted({**result.baselines, name: own_value}.items(), key=lambda row: -row[1]):
        table.add_row(row, f"{value:.3f}", style="bold" if row == name else "")
    console.print(table)
    beaten = [baseline for baseline, value in result.baselines.items() if own_value < value]
    console.print(f"{name} is better than {beaten[-1] if beaten else 'none of the baselines'}.", highlight=False)
    if session.settings.sample and session.settings.carry_state:
        prompt = task.before_test[-200:].to(next(session.model.parameters()).device)
        tokens = session.model.generate(prompt[None], session.settings.sample, temperature=0.8, seed=1)  # type: ignore[operator]
        sample = f"\nA sample, after {task.decode(prompt)[-60:]!r}:\n\n{task.decode(tokens[0])}"
        console.print(sample, markup=False, highlight=False)


@torch.no_grad()
def measure(model: nn.Module, tokens: Tensor, settings: LanguageModelling, stride: int) -> dict[str, float]:
    """Mean loss, bits and perplexity per token over all but the first: with carried state, or by sliding windows."""
    device = next(model.parameters()).device
    read = _carried if settings.carry_state else _windowed
    with evaluating(model):
        total = sum(part.double().sum().item() for part in read(model, tokens.to(device), settings.window, stride))
    loss = total / (len(tokens) - 1)
    return {"bits": loss * BITS, "loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}


@torch.no_grad()
def state_norms(model: nn.Module, tokens: Tensor, every: int) -> dict[Point, float]:
    """The curve "state": the norm of the state of all layers after each `every` tokens of one stream."""
    norms: dict[Point, float] = {}
    state = None
    whole = tokens[: len(tokens) // every * every].to(next(model.parameters()).device)
    with evaluating(model):
        for n, chunk in enumerate(whole.unsqueeze(0).split(every, 1), 1):
            _, state = model(chunk, state, targets=chunk)
            numbers = [leaf.double() for leaf in tree_leaves(state) if leaf.is_floating_point()]
            norms[Point("state", n)] = sum(float(leaf.square().sum()) for leaf in numbers) ** 0.5
    return norms


def _carried(model: nn.Module, tokens: Tensor, window: int, stride: int) -> Iterator[Tensor]:
    """Losses of one stream with a carried state."""
    state = None
    for start in range(0, len(tokens) - 1, 1024):
        chunk = tokens[start : start + 1025]
        loss, state = model(chunk[None, :-1], state, targets=chunk[None, 1:])
        yield loss


def _windowed(model: nn.Module, tokens: Tensor, window: int, stride: int) -> Iterator[Tensor]:
    """Losses of independent windows, each token in the first window that contains it."""
    for inputs, targets in sliding(tokens, window, stride, max(1, TOKENS_PER_BATCH // window)):
        yield model(inputs, targets=targets)[0]


def sliding(tokens: Tensor, window: int, stride: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Windows at intervals of `stride` tokens: inputs, and targets that are -1 where an earlier window has them.

    >>> [targets.tolist() for _, targets in sliding(torch.arange(6), 3, 2, 8)]
    [[[1, 2, 3], [-1, 4, 5]]]
    """
    length = len(tokens) - 1
    window = min(window, length)
    # The last window ends with the tokens, so fewer of its targets may be new.
    starts = torch.tensor([*range(0, length - window, stride), length - window], device=tokens.device)
    scored = torch.cat([starts.new_zeros(1), starts[:-1] + window])
    for first, old in zip(starts.split(batch_size), scored.split(batch_size), strict=True):
        positions = first.unsqueeze(1) + torch.arange(window, device=tokens.device)
        yield tokens[positions], tokens[positions + 1].masked_fill(positions < old.unsqueeze(1), -1)


def make_optimiser(model: nn.Module, settings: LanguageModelling) -> torch.optim.Optimizer:
    """Creates the optimiser of a run. Only matrices decay; with Muon, only those that it trains."""
    muon = settings.optimizer == "muon"
    matrices = matrices_of(model) if muon else [p for p in model.parameters() if p.ndim >= 2]
    chosen = set(matrices)
    others = [p for p in model.parameters() if p not in chosen]
    rate, decay, betas = settings.learning_rate, settings.weight_decay, settings.betas
    if muon:
        return Muon(matrices, others, rate, decay, betas)
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=True)


def _training_step(session: Session, graphs: CudaGraphs | None) -> Callable[..., tuple[Tensor, Any]]:
    """The training step as a function of a batch and the state before it, with `graphs` as a CUDA graph."""
    fabric, settings = session.fabric, session.settings
    norm, accumulation_steps = settings.max_grad_norm, settings.gradient_accumulation_steps

    def step(batch: tuple[Tensor, Tensor], before: Any) -> tuple[Tensor, Any]:
        return update(fabric, session.model, session.optimiser, batch, before, norm, accumulation_steps)

    if graphs is None:
        return step
    make_capturable(session.optimiser, fabric.device)
    return Graphed(step, graphs)


def update(
    fabric: Fabric,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    before: Any,
    max_grad_norm: float,
    gradient_accumulation_steps: int = 1,
) -> tuple[Tensor, Any]:
    """One training step on a batch of this process; returns the loss in nats and the state, without its history."""
    parts = micro_batches(batch, gradient_accumulation_steps)
    after = []

    def loss(index: int) -> Tensor:
        inputs, targets = parts[index]
        size = len(inputs)
        losses, state = model(inputs, select(before, slice(index * size, (index + 1) * size)), targets=targets)
        after.append(detach(state))
        return losses.mean() / len(parts)

    total = step_optimiser(fabric, model, optimiser, [partial(loss, n) for n in range(len(parts))], max_grad_norm)
    return total, tree_map(lambda *leaves: torch.cat(leaves), *after) if len(after) > 1 else after[0]


def _evaluate(session: Session, model: nn.Module) -> str:
    """Evaluates on validation data, without a carried state by adjacent windows; returns a line of progress."""
    progress, task, settings = session.progress, session.task, session.settings
    metric = task.main_metric
    train_bits = progress.mean_loss * BITS
    measured = measure(model, task.validation, settings, settings.window)
    rate = settings.learning_rate_at(progress.step - 1)
    session.record_evaluation(Evaluation(measured, train={"bits": train_bits}, facts={"learning_rate": rate}))
    validation = f"validation {measured[metric.name]:.3f} {metric.name} per {task.unit}"
    line = f"step {progress.step:>5}  train {train_bits:.3f} bits  {validation}"
    return f"{line}  {session.speed(settings.window):>7}  {session.remaining_time()}"
