"""The tasks of the experiment `abilities` compared with answers from a loop over tokens."""

import numpy as np
import pytest
import torch

from fastweights import InputError
from fastweights.tasks import Batch
from fastweights.tasks.associative_recall import AssociativeRecall
from fastweights.tasks.copying import Copying
from fastweights.tasks.in_context_regression import InContextRegression
from fastweights.tasks.kinds.labelled import IGNORE
from fastweights.tasks.selective_forgetting import MARKER, NOTHING, SelectiveForgetting
from fastweights.tasks.state_tracking import StateTracking


def test_part(task: object) -> Batch:
    """All test sequences."""
    return next(iter(task.test(10_000)))


test_part.__test__ = False


@pytest.mark.parametrize("distractors", [0, 11])
@pytest.mark.parametrize("rewritten", [0, 4, 6])
def test_recall_answers_with_the_last_value_of_a_key(rewritten, distractors):
    task = AssociativeRecall(64, 64, 6, rewritten, distractors, evaluation_length=96, evaluation_size=300)
    inputs, targets = test_part(task)
    assert inputs.shape == (300, 96)
    writes = 6 + rewritten
    for row, answers in zip(inputs.tolist(), targets.tolist(), strict=True):
        memory, queries, noise, t, written = {}, {}, 0, 0, 0
        while written < writes:
            if row[t] >= 64:
                noise, t = noise + 1, t + 1
            else:
                memory[row[t]] = row[t + 1]
                written, t = written + 1, t + 2
        noise += sum(token >= 64 for token in row[t:])
        queries = {row[n]: answers[n] for n in range(len(row)) if answers[n] != IGNORE}
        assert queries == memory
        assert len(memory) == 6
        assert noise == distractors


def test_rewritten_keys_are_written_twice_at_random_places():
    inputs, _ = test_part(AssociativeRecall(64, 64, 6, rewritten=6, evaluation_size=500))
    keys = inputs[:, 0:24:2]
    assert all(len(set(row)) == 6 for row in keys.tolist())
    gaps = [np.diff([np.flatnonzero(row == key) for key in set(row.tolist())], axis=1) for row in keys.numpy()]
    assert 3 < np.mean(gaps) < 6  # 13 / 3 on average
    assert min(map(np.min, gaps)) == 1


@pytest.mark.parametrize(("options", "wrong"), [({"rewritten": 7}, "rewritten"), ({"distractors": 41}, "pairs")])
def test_recall_rejects_more_writes_than_its_length(options, wrong):
    with pytest.raises(InputError, match=f"{wrong} must be from"):
        AssociativeRecall(64, 64, 6, **options)


def test_evaluation_length_does_not_change_training_batches():
    short, long = (StateTracking("s3", 10, length) for length in (0, 40))
    for batches in zip(short.train_batches(4, 0), long.train_batches(4, 0), strict=False):
        assert all(torch.equal(*parts) for parts in zip(*batches, strict=True))
        break
    assert test_part(short).inputs.shape[1] == 10
    assert test_part(long).inputs.shape[1] == 40


def test_copying_targets_are_all_symbols_in_order():
    inputs, targets = test_part(Copying(5, 9, 100))
    assert torch.equal(inputs[:, :9], targets)
    assert (inputs[:, 9:] == 0).all()
    assert set(targets.unique().tolist()) == {1, 2, 3, 4, 5}


def test_marker_voids_all_earlier_pairs():
    task = SelectiveForgetting(evaluation_size=2000)
    inputs, targets = test_part(task)
    void = []
    for row, answers in zip(inputs.tolist(), targets.tolist(), strict=True):
        memory, t = {}, 0
        while t < 2 * task.pairs + task.markers:
            if row[t] == MARKER:
                memory = dict.fromkeys(memory, NOTHING)
            t += 1 if row[t] in (MARKER, 0) else 2
            if t >= 2 and row[t - 2] > MARKER and row[t - 2] < 32 <= row[t - 1]:
                memory[row[t - 2]] = row[t - 1]
        assert dict(zip(row[-task.pairs :], answers, strict=True)) == memory
        void.append(np.mean([answer == NOTHING for answer in answers]))
    assert abs(np.mean(void) - task.chance["accuracy"]) < 0.02


def test_regression_classes_are_ranges_of_y_that_ridge_regression_predicts():
    task = InContextRegression(4, 24, 8, 0.1, evaluation_size=2000)
    inputs, targets = test_part(task)
    assert (targets[:, :4] == IGNORE).all()
    shares = torch.bincount(targets[:, 4:].flatten()) / targets[:, 4:].numel()
    assert (shares - 1 / 8).abs().max() < 0.04
    y = inputs[:, 5:, -1].contiguous()  # one step later, as an input
    bounds = torch.special.ndtri(torch.arange(1, 8) / 8)
    assert torch.equal(torch.bucketize(y, bounds), targets[:, 4:-1])
    accuracy = task.baselines()["ridge regression"]
    reference = np.mean([_accuracy_of_least_squares(inputs[n].numpy(), targets[n].numpy(), bounds) for n in range(200)])
    assert accuracy > reference - 0.02
    assert 0.6 < accuracy < 0.95


def _accuracy_of_least_squares(inputs, targets, bounds):
    """The fraction of steps for which NumPy's least squares on the preceding pairs gives the right range."""
    x, y = inputs[:, :-1], inputs[1:, -1]
    guesses = [x[t] @ np.linalg.lstsq(x[:t], y[:t], rcond=None)[0] for t in range(4, len(x))]
    return np.mean(np.searchsorted(bounds.numpy(), guesses) == targets[4:])
