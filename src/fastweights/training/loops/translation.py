"""Training of translators on sentence pairs, with BLEU for model selection."""

from functools import partial
from typing import Any

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fastweights.core.metric import SIGNATURE
from fastweights.tasks.kinds.labelled import IGNORE
from fastweights.tasks.kinds.pairs import PairBatch, Pairs, PairSet, Sentences
from fastweights.training.distributed.ranks import part_of
from fastweights.training.eval_mode import evaluating
from fastweights.training.optimiser_step import micro_batches, set_learning_rate, step_optimiser
from fastweights.training.run_folder.result import Result
from fastweights.training.session import Evaluation, Session
from fastweights.training.settings.translation import Translation

AT_ONCE = 128
"""Number of sentences per batch of translations."""


def train(session: Session) -> None:
    """Trains until `steps`, or until early stopping; resumes the run if there is a checkpoint.

    The run folder then has `last.safetensors` to resume from, `best.safetensors` with the best weights (by BLEU of
    greedy decoding on validation data), and `metrics.jsonl`. Raises `Interrupted` on Ctrl-C or SIGTERM, after a
    checkpoint.
    """
    fabric, task, settings = session.fabric, session.task, session.settings
    task.require_room(settings.batch_size)
    model, optimiser = session.set_up(adam(session.model, settings))
    session.resume(())
    batches = task.train_batches(settings.batch_size, settings.seed, session.progress.step)
    with session.running():
        while not session.progress.stopped:
            set_learning_rate(optimiser, settings.learning_rate_at(session.progress.step))
            loss = update(fabric, model, optimiser, next(batches), settings)
            session.count(loss, f"{loss:.2f} nats per token")
            note = _evaluate(session, model) if session.evaluation_is_due else ""
            session.end_step((), note)


def finish(session: Session) -> Result:
    """Measures the best weights, with beam search."""
    fabric, task, settings = session.fabric, session.task, session.settings
    model = fabric.setup_module(session.model)
    parts = (
        measure(fabric, model, task, part, settings.num_beams, settings.length_penalty)
        for part in (task.validation, task.test)
    )
    return session.result(*parts)


def show(session: Session, result: Result, console: Console) -> None:
    """Prints BLEU with its signature, and a few translations."""
    task, settings = session.task, session.settings
    how = f"beam {settings.num_beams}, length penalty {settings.length_penalty:g}, {SIGNATURE}"
    console.print(f"BLEU {result.test['bleu']:.1f} on test data ({how})", highlight=False)
    few = Sentences.of(task.test.sources[n] for n in range(min(3, len(task.test.sources))))
    translations = translate(session.model, task, few, settings.num_beams, settings.length_penalty)
    for n, sentence in enumerate(translations):
        lines = [task.decode(few[n]), sentence, f"({task.test.references[n]})"]
        console.print("\n" + "\n".join(lines), markup=False, highlight=False)


def adam(model: nn.Module, settings: Translation) -> torch.optim.Optimizer:
    """Creates the optimiser of a run."""
    return torch.optim.Adam(model.parameters(), settings.learning_rate, settings.betas, fused=True)


def update(
    fabric: Fabric, model: nn.Module, optimiser: torch.optim.Optimizer, batch: PairBatch, settings: Translation
) -> float:
    """One training step on a batch; returns its loss, in nats per token."""
    # The tokens of all processes, since gradients are averaged though processes have different numbers of tokens.
    # With fewer sentences than processes, each process has all of them.
    shares = fabric.world_size if len(batch.target) >= fabric.world_size else 1
    tokens = int(batch.target_lengths.sum()) / shares
    parts = micro_batches(
        (fabric.to_device(part_of(fabric, part)) for part in batch), settings.gradient_accumulation_steps
    )
    how: Any = {"ignore_index": IGNORE, "label_smoothing": settings.label_smoothing, "reduction": "sum"}

    def loss(part: PairBatch) -> Tensor:
        return cross_entropy(_logits(model, part), part.labels.flatten(), **how) / tokens

    losses = [partial(loss, PairBatch(*part)) for part in parts]
    return step_optimiser(fabric, model, optimiser, losses, settings.max_grad_norm).item()


def _logits(model: nn.Module, batch: PairBatch) -> Tensor:
    logits = model(batch.source, batch.source_lengths, batch.target, batch.target_lengths)
    flat: Tensor = logits.flatten(0, 1).float()
    return flat


@torch.no_grad()
def measure(
    fabric: Fabric, model: nn.Module, task: Pairs, pairs: PairSet, num_beams: int, length_penalty: float
) -> dict[str, float]:
    """Mean loss in nats per token, and BLEU of translations."""
    import sacrebleu

    total, tokens = 0.0, 0
    with evaluating(model):
        for chosen in torch.arange(len(pairs.sources)).split(AT_ONCE):
            batch = PairBatch(*(fabric.to_device(part) for part in task.batch(chosen.tolist(), pairs)))
            total += cross_entropy(
                _logits(model, batch), batch.labels.flatten(), ignore_index=IGNORE, reduction="sum"
            ).item()
            tokens += int(batch.target_lengths.sum())
        translations = translate(model, task, pairs.sources, num_beams, length_penalty)
    return {"loss": total / tokens, "bleu": sacrebleu.corpus_bleu(translations, [list(pairs.references)]).score}


def translate(model: nn.Module, task: Pairs, sources: Sentences, num_beams: int, length_penalty: float) -> list[str]:
    """The best hypothesis of every non-empty source sentence, of at most twice its tokens plus 10."""
    device = next(model.parameters()).device
    translations = [""] * len(sources)
    # Batches of similar length, since a batch takes as long as its longest translation.
    order = sources.lengths.argsort(stable=True).tolist()
    for start in range(0, len(order), AT_ONCE):
        chosen = order[start : start + AT_ONCE]
        rows = [sources[n] for n in chosen]
        lengths = torch.tensor([len(row) for row in rows])
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        marks = (task.bos_token_id, task.eos_token_id, 2 * lengths + 10)
        batches = model.translate(padded.to(device), lengths.to(device), *marks, num_beams, length_penalty)  # type: ignore[operator]
        for n, hypotheses in zip(chosen, batches, strict=True):
            translations[n] = task.decode(torch.tensor(hypotheses[0].tokens, dtype=torch.long))
    return translations


def _evaluate(session: Session, model: nn.Module) -> str:
    """Evaluates on validation data; returns a line of progress."""
    progress, task = session.progress, session.task
    train_loss = progress.mean_loss
    measured = measure(session.fabric, model, task, task.validation, num_beams=1, length_penalty=1.0)
    session.record_evaluation(Evaluation(measured, facts={"learning_rate": session.optimiser.param_groups[0]["lr"]}))
    line = f"step {progress.step:>6}  train {train_loss:.3f}  validation {measured['loss']:.3f} nats per token"
    rate = f"{session.clock.rate(progress.step):,.1f} training steps/s"
    return f"{line}, {measured['bleu']:.2f} BLEU  {rate}  {session.remaining_time()}"
