"""Checks of tasks with labelled sequences, one per guarantee. Each takes `make`, which builds the task."""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from math import sqrt

import torch
from torch.utils._pytree import tree_leaves

from fastweights.tasks import IGNORE, Batch, Labelled, Metrics, combine
from fastweights.tasks.kinds.labelled import Padded
from fastweights.testing.refusals import assert_bad_options_are_refused, assert_refused

Make = Callable[..., Labelled]
B = 6


def fingerprint(batch: Batch) -> str:
    """SHA-256 of a batch, the same on every platform.

    >>> fingerprint(Batch(torch.tensor([[1]]), torch.tensor([[2]])))[:16]
    '40e90452fee2f908'
    """
    digest = hashlib.sha256()
    for part in tree_leaves(batch):
        digest.update(f"{part.dtype} {list(part.shape)}".encode())
        array = part.contiguous().numpy()
        digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def fingerprints(task: Labelled) -> str:
    """Digest of the first training, validation and test batch together."""
    batches = (next(task.train_batches(B, seed=1)), next(task.validation(B)), next(task.test(B)))
    return hashlib.sha256("".join(map(fingerprint, batches)).encode()).hexdigest()


def first_batches(task: Labelled, n: int, seed: int, start: int = 0) -> list[str]:
    """Digests of `n` training batches from step `start`."""
    return [fingerprint(batch) for batch in islice(task.train_batches(B, seed, start), n)]


def sequences(batches: Iterator[Batch]) -> list[bytes]:
    """Digests of the inputs of single sequences, without the padding that depends on their batch."""
    rows = (row[: _length(row)].numpy() for batch in batches for row in _values(batch))
    return [hashlib.sha256(row.tobytes()).digest() for row in rows]


def _values(batch: Batch) -> torch.Tensor:
    """The inputs of a batch, without lengths."""
    values: torch.Tensor = batch.inputs.values if isinstance(batch.inputs, Padded) else batch.inputs
    return values


def _length(row: torch.Tensor) -> int:
    """Number of time steps without padding, which is 0 throughout."""
    steps = (row != 0).flatten(1).any(1) if row.ndim > 1 else row != 0
    return int((steps * torch.arange(1, len(row) + 1)).max())


def check_seeds_reproduce(make: Make) -> None:
    """A seed gives the same batches in two tasks, from any step. The fixed sets are the same."""
    one, other = make(), make()
    batches = first_batches(one, 4, seed=3)
    assert batches == first_batches(other, 4, seed=3), "two tasks with one seed differ"
    assert batches[2:] == first_batches(other, 2, seed=3, start=2), "batches depend on the first step"
    assert fingerprints(one) == fingerprints(other), "the validation or the test set differs"


def check_seeds_differ(make: Make) -> None:
    """Another seed and another step give other batches."""
    task = make()
    batches = first_batches(task, 3, seed=3) + first_batches(task, 3, seed=4)
    assert len(set(batches)) == len(batches), "two batches are the same"


def check_epoch_covers_the_training_set(make: Make) -> None:
    """An epoch of a fixed training set has each sequence once, in another order than the previous epoch."""
    task = make()
    if task.training_size is None:
        return
    size = -(-task.training_size // 3)
    steps = -(-task.training_size // size)
    epochs = [_epoch(task, size, start) for start in (0, steps)]
    assert all(len(inputs) == task.training_size for inputs in epochs), "an epoch has another size"
    assert sorted(epochs[0]) == sorted(epochs[1]), "an epoch leaves sequences out or repeats them"
    assert epochs[0] != epochs[1], "the order is the same in every epoch"


def _epoch(task: Labelled, batch_size: int, start: int) -> list[bytes]:
    assert task.training_size is not None
    steps = -(-task.training_size // batch_size)
    return sequences(islice(task.train_batches(batch_size, 0, start), steps))


def check_splits_are_disjoint(make: Make) -> None:
    """No sequence is in two of the training, validation and test set."""
    task = make()
    steps = 50 if task.training_size is None else -(-task.training_size // B)
    train = set(sequences(islice(task.train_batches(B, seed=0), steps)))
    validation, test = set(sequences(task.validation(B))), set(sequences(task.test(B)))
    assert not train & validation, "training and validation share sequences"
    assert not (train | validation) & test, "the test set shares sequences with another set"


def check_shapes_types_and_ranges(make: Make) -> None:
    """Inputs and targets have the shapes and dtypes of `Batch`, within the sizes that the task states."""
    task = make()
    for batch in (next(task.train_batches(B, 0)), next(task.validation(B)), next(task.test(B))):
        inputs, targets = _values(batch), batch.targets
        trailing = {"tokens": [], "pairs": [2], "features": [task.input_size]}[task.input_kind]
        assert list(inputs.shape[2:]) == trailing, f"inputs are {list(inputs.shape)}"
        assert len(inputs) == len(targets), "inputs and targets have different batch sizes"
        assert targets.shape[1] <= inputs.shape[1], "there are more targets than steps"
        assert targets.dtype == torch.int64, f"targets are {targets.dtype}"
        _check_inputs_in_range(task, inputs)
        scored = targets[targets != IGNORE]
        assert len(scored) > 0, "a batch has no scored position"
        assert 0 <= scored.min() <= scored.max() < task.output_size, "a target is out of range"


def _check_inputs_in_range(task: Labelled, inputs: torch.Tensor) -> None:
    if task.input_kind == "features":
        assert inputs.dtype == torch.float32, f"features are {inputs.dtype}"
        assert inputs.isfinite().all(), "a feature is not finite"
        return
    highest = task.input_size + (task.input_kind == "pairs")
    assert inputs.dtype == torch.int64, f"tokens are {inputs.dtype}"
    assert 0 <= inputs.min() <= inputs.max() < highest, "a token is out of range"


def check_correct_answers_score_perfectly(make: Make) -> None:
    """Correct answers have a loss of 0, and every other metric is 1."""
    task = make()
    metrics = _score(task, task.perfect_outputs)
    assert task.main_metric.name in metrics, f"there is no metric {task.main_metric.name}"
    for name, mean in metrics.items():
        expected = 0.0 if name == "loss" else 1.0
        assert abs(mean.value - expected) < 1e-9, f"{name} of correct answers is {mean.value}"


def check_chance_level_is_the_score_of_a_guess(make: Make) -> None:
    """A random guess reaches the stated chance level, within four standard errors."""
    task = make()
    metrics, chance = _score(task, task.baseline_outputs), task.chance
    n = sum(len(batch.targets) for batch in task.test(100))
    assert metrics.keys() == chance.keys(), f"chance is stated for {sorted(chance)}, not for {sorted(metrics)}"
    for name, mean in metrics.items():
        p = chance[name]
        allowed = 1e-4 if name == "loss" else 4 * sqrt(p * (1 - p) / n) + 1e-9
        assert abs(mean.value - p) <= allowed, f"{name} of a guess is {mean.value:.4f}, not {p:.4f}"


def _score(task: Labelled, answer: Callable[[torch.Tensor], torch.Tensor]) -> Metrics:
    return combine(task.metrics(answer(batch.targets), batch.targets) for batch in task.test(100))


def check_metrics_do_not_depend_on_batches(make: Make) -> None:
    """Metrics do not depend on the batches of the set, and `loss` returns the metric of that name."""
    task = make()
    whole = next(task.test(4 * B))
    outputs = torch.randn(*whole.targets.shape, task.output_size, generator=torch.Generator().manual_seed(0))
    together = task.metrics(outputs, whole.targets)
    for cut in (1, B, B + 1):
        pairs = zip(outputs.split(cut), whole.targets.split(cut), strict=True)
        parts = combine(task.metrics(*pair) for pair in pairs)
        for name, mean in together.items():
            assert parts[name].count == mean.count, f"the count of {name} depends on the batches"
            assert abs(parts[name].value - mean.value) < 1e-5 * max(1, abs(mean.value)), (
                f"{name} depends on the batches"
            )
    assert abs(float(task.loss(outputs, whole.targets)) - together["loss"].value) < 1e-4, (
        "`loss` differs from the metric"
    )


def check_padding_is_not_scored(make: Make) -> None:
    """Outputs at unscored positions change neither loss nor metrics."""
    task = make()
    targets = next(task.test(B)).targets
    outputs = task.baseline_outputs(targets)
    noise = torch.where((targets == IGNORE).unsqueeze(-1), torch.randn_like(outputs), outputs)
    assert task.metrics(noise, targets) == task.metrics(outputs, targets)


def check_loss_has_gradients_at_scored_positions_only(make: Make) -> None:
    """The loss has gradients at scored positions, and only there."""
    task = make()
    targets = next(task.test(B)).targets
    outputs = task.baseline_outputs(targets).requires_grad_()
    (gradient,) = torch.autograd.grad(task.loss(outputs, targets), outputs)
    assert torch.equal(gradient.abs().sum(-1) > 0, targets != IGNORE)


def check_bad_options_are_refused(make: Make) -> None:
    """Invalid options, empty batches and outputs of another shape raise an `InputError`."""
    assert_bad_options_are_refused(make)
    task = make()
    for arguments in ((0, 0, 0), (1, -1, 0), (1, 0, -1)):
        assert_refused(partial(task.train_batches, *arguments), f"train_batches{arguments}")
    assert_refused(lambda: next(task.validation(0)), "validation(0)")
    targets = next(task.test(B)).targets
    assert_refused(lambda: task.loss(task.baseline_outputs(targets)[..., :-1], targets), "outputs with a class too few")
