"""Tasks compared with independent implementations: an interpreter, rejection sampling, the original files."""

import gzip
import os
import re
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from fastweights import InputError
from fastweights.tasks import IGNORE
from fastweights.tasks.associative_recall import AssociativeRecall
from fastweights.tasks.associative_retrieval import VOCABULARY as LETTERS
from fastweights.tasks.associative_retrieval import AssociativeRetrieval
from fastweights.tasks.code_execution import CodeExecution
from fastweights.tasks.face_glimpses import FaceGlimpses
from fastweights.tasks.list_ops import VOCABULARY as LIST_WORDS
from fastweights.tasks.list_ops import ListOps, evaluate, read_examples
from fastweights.tasks.mnist_glimpses import MNISTGlimpses
from fastweights.tasks.retrieval import Retrieval, separate
from fastweights.tasks.sources.glimpses import cut_glimpses
from fastweights.tasks.sources.ridge import STRENGTHS, oriented_gradients, ridge_accuracy
from fastweights.tasks.state_tracking import StateTracking


@pytest.fixture
def data(monkeypatch):
    """Folder of real data. Skips the test without it."""
    folder = Path(os.environ.get("FASTWEIGHTS_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data: {folder} is no folder; name one with FASTWEIGHTS_DATA")
    monkeypatch.setenv("FASTWEIGHTS_DATA", str(folder))
    return folder


# Retrieval


@pytest.mark.parametrize("setting", ["capacity", "updates"])
def test_retrieval_targets_are_the_last_values_of_the_keys(setting):
    task = Retrieval(7, setting)
    for batch in (next(task.train_batches(50, 0)), next(task.validation(50)), next(task.test(50))):
        length = batch.inputs.shape[1] - batch.targets.shape[1]
        for steps, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            memory = dict(steps[:length])
            assert targets == [memory.get(key, IGNORE) for key, _ in steps[length:]]
            assert all(value == task.symbols for _, value in steps[length:])


def test_capacity_has_every_key_and_value_once():
    steps = next(Retrieval(9).train_batches(30, 0)).inputs[:, :-1]
    assert torch.equal(steps.sort(1).values, torch.arange(9).view(1, 9, 1).expand(30, 9, 2))
    assert len({tuple(row) for row in steps.flatten(1).tolist()}) == 30


@pytest.mark.parametrize(("setting", "length"), [("published", 30), ("implied", 60)])
def test_evaluation_length_of_updates(setting, length):
    task = Retrieval(30, "updates", setting)
    assert next(task.train_batches(5, 0)).inputs.shape == (5, 61, 2)
    batch = next(task.test(5))
    assert batch.inputs.shape == (5, length + 30, 2)
    different = [len(set(steps[:length])) for steps in batch.inputs[..., 0].tolist()]
    assert (batch.targets != IGNORE).sum(1).tolist() == different


def test_updates_query_frequent_keys_more_often():
    """The query is the key at a uniform position, so a key that occurs twice is twice as likely."""
    batch = next(Retrieval(5, "updates").train_batches(20_000, 0))
    times = (batch.inputs[:, :-1, 0] == batch.inputs[:, -1:, 0]).sum(1).double()
    assert times.mean() == pytest.approx(1 + 9 / 5, abs=0.05)


def test_separate_queries_equal_the_queries_of_a_batch():
    batch = next(Retrieval(6, "updates").test(4))
    alone = separate(batch)
    assert alone.inputs.shape == (int((batch.targets != IGNORE).sum()), 7, 2)
    for steps, target in zip(alone.inputs.tolist(), alone.targets.tolist(), strict=True):
        assert target == [dict(steps[:-1])[steps[-1][0]]]


def test_half_squared_error_is_summed_over_symbols_and_averaged():
    task, targets = Retrieval(4), torch.tensor([[1], [2]])
    outputs = torch.tensor([[[0.0, 1.0, 0.0, 2.0]], [[1.0, 0.0, 1.0, 0.0]]])
    assert float(task.loss(outputs, targets)) == pytest.approx((0.5 * 4 + 0.5 * 1) / 2)


# Associative retrieval


def test_associative_retrieval_equals_string_search():
    task = AssociativeRetrieval(sizes=(2000, 10, 10))
    batch = next(task.train_batches(2000, 0))
    for row, target in zip(batch.inputs.tolist(), batch.targets[:, 0].tolist(), strict=True):
        text = "".join(LETTERS[token] for token in row)
        assert re.fullmatch(r"([a-z]\d){4}\?\?[a-z]", text)
        assert len(set(text[:8:2])) == 4
        assert text[text.index(text[-1]) + 1] == str(target)


def test_digits_have_replacement_and_queries_are_uniform():
    batch = next(AssociativeRetrieval(sizes=(20_000, 1, 1)).train_batches(20_000, 0))
    digits = [len(set(row)) for row in batch.inputs[:, 1:8:2].tolist()]
    assert np.mean(np.array(digits) == 4) == pytest.approx(0.9 * 0.8 * 0.7, abs=0.02)
    place = (batch.inputs[:, 0:8:2] == batch.inputs[:, -1:]).int().argmax(1)
    assert (place.bincount() / 20_000).tolist() == pytest.approx([0.25] * 4, abs=0.02)
    assert (batch.targets.flatten().bincount() / 20_000).tolist() == pytest.approx([0.1] * 10, abs=0.01)


def test_all_sequences_of_a_small_task_are_different():
    sets = AssociativeRetrieval(pairs=2, sizes=(40_000, 10_000, 10_000)).sets
    rows = torch.cat([part.inputs for part in sets]).tolist()
    assert len(set(map(tuple, rows))) == 60_000


def test_more_sequences_than_exist_are_refused():
    with pytest.raises(InputError, match=r"sizes must be at most 65000 together, got 130000\. Use more pairs"):
        AssociativeRetrieval(pairs=2)


# Code execution


def interpret(words, rule):
    """Runs a program, and yields the output at every word."""
    values, condition = {}, None
    words = list(words)
    while words:
        if words[0] == "if":
            _, name, order, bound, _ = words[:5]
            condition = values[name] < int(bound) if order == "<" else values[name] > int(bound)
            yield from ["_"] * 5
            del words[:5]
            continue
        end = words.index(";") + 1
        statement, output = words[:end], "_"
        del words[:end]
        if statement[0] == "print":
            output = str(values[statement[1]]) if condition in (None, True) else "_"
        elif statement[1] == "=":
            ignored = condition is not None and rule == "published" and statement[0] in values
            if condition in (None, True) and not ignored:
                values[statement[0]] = int(statement[2])
        elif condition in (None, True):
            values[statement[0]] += 1 if statement[1] == "++" else -1
            assert -8 <= values[statement[0]] <= 16
        yield from ["_"] * (end - 1) + [output]
        condition = None


def programs(task):
    """Words and outputs of the training programs."""
    outputs = ("_", *map(str, range(-8, 17)))
    train = task.sets.train
    for row, targets in zip(train.inputs.tolist(), train.targets.tolist(), strict=True):
        n = sum(target != IGNORE for target in targets)
        yield [task.vocabulary[token] for token in row[:n]], [outputs[target] for target in targets[:n]]


@pytest.mark.parametrize("rule", ["published", "corrected"])
@pytest.mark.parametrize("variables", [3, 5])
@pytest.mark.parametrize("statements", [2, 100])
def test_outputs_of_programs_equal_those_of_an_interpreter(statements, variables, rule):
    for words, outputs in programs(CodeExecution(variables, rule, statements, sizes=(300, 1, 1))):
        assert list(interpret(words, rule)) == outputs
        assert words.count(";") == statements
        assert words[1] == "="
        assert words[-3] == "print"


def test_published_and_corrected_programs_have_different_outputs():
    """In most programs, the published labels are wrong under the corrected rule."""
    pairs = programs(CodeExecution(sizes=(100, 1, 1)))
    assert sum(list(interpret(words, "corrected")) != outputs for words, outputs in pairs) > 50


@pytest.mark.parametrize(("variables", "ignored"), [(3, 0.93), (5, 0.86)])
def test_published_rule_ignores_most_conditional_assignments(variables, ignored):
    assignments = Counter()
    for words, _ in programs(CodeExecution(variables, sizes=(400, 1, 1))):
        values, text = {}, " ".join(words)
        for condition, statement in re.findall(r"(if . . . : )?((?:print . |. = . |. ..? );)", text):
            name, rest = statement.split()[0], statement.split()[1:]
            holds = not condition or holds_for(values, condition.split())
            if condition and holds and rest[0] == "=":
                assignments[name in values] += 1
            if rest[0] == "=" and holds and not (condition and name in values):
                values[name] = int(rest[1])
            elif rest[0] in ("++", "--") and holds:
                values[name] += 1 if rest[0] == "++" else -1
    assert assignments[True] / assignments.total() == pytest.approx(ignored, abs=0.02)


def holds_for(values, condition):
    _, name, order, bound, _ = condition
    return values[name] < int(bound) if order == "<" else values[name] > int(bound)


def test_programs_have_the_published_lengths_and_prints():
    pairs = list(programs(CodeExecution(sizes=(1000, 1, 1))))
    assert np.mean([len(words) for words, _ in pairs]) == pytest.approx(456, abs=3)
    assert np.mean([len(outputs) - outputs.count("_") for _, outputs in pairs]) == pytest.approx(29, abs=1)


def test_the_chance_level_is_the_share_of_the_most_frequent_value():
    task = CodeExecution(sizes=(10_000, 1, 1))
    prints = task.sets.train.targets[task.sets.train.targets > 0]
    shares = prints.long().bincount() / len(prints)
    assert shares[task.majority_class] == pytest.approx(task.chance["print_accuracy"], abs=0.004)
    assert shares.max() == pytest.approx(task.chance["print_accuracy"], abs=0.004)


def test_accuracy_counts_programs_and_print_accuracy_counts_prints():
    task = CodeExecution(sizes=(1, 1, 2))
    targets = next(task.test(2)).targets
    outputs = task.perfect_outputs(targets)
    quiet = int((targets[0] == 0).nonzero()[0])
    outputs[0, quiet] = outputs[0, quiet].roll(1)
    metrics = task.metrics(outputs, targets)
    assert metrics["accuracy"].value == 0.5
    assert metrics["print_accuracy"].value == 1.0


@pytest.mark.parametrize(("variables", "words"), [(3, 22), (5, 24)])
def test_vocabulary_contains_exactly_the_words_of_the_data(variables, words):
    task = CodeExecution(variables, sizes=(50, 1, 1))
    assert len(task.vocabulary) == task.input_size == words
    assert task.output_size == 26
    assert len(set(task.sets.train.inputs.flatten().tolist())) == words


# ListOps


def nested(random, limit):
    """Words and depth of a random list of the published generator."""
    words, depth = [("[MAX", "[MIN", "[FIRST")[random.integers(3)]], 1
    for _ in range(random.integers(2, 6)):
        if limit > 1 and random.random() < 0.25:
            inner, below = nested(random, limit - 1)
            words, depth = words + inner, max(depth, 1 + below)
        else:
            words.append(str(random.integers(10)))
    return [*words, "]"], depth


def lists(task):
    """Words and labels of the training lists."""
    train = task.sets.train
    for row, targets in zip(train.inputs.tolist(), train.targets.tolist(), strict=True):
        (end,) = (t for t, target in enumerate(targets) if target != IGNORE)
        yield [LIST_WORDS[token] for token in row[: end + 1]], targets[end]


def depth_of(words):
    depth = deepest = 0
    for word in words:
        depth += (word[0] == "[") - (word == "]")
        deepest = max(deepest, depth)
    return deepest


@pytest.mark.parametrize("depth", [1, 2, 10, 15, 19])
def test_lists_have_their_depth_and_value(depth):
    for words, label in lists(ListOps(depth, sizes=(300, 1, 1))):
        assert depth_of(words) == depth
        assert evaluate(words) == label


def test_sampler_has_the_distribution_of_rejection_sampling():
    """Lists of depth 3: distributions of words, values, operators and the first closing bracket."""
    random, n = np.random.default_rng(0), 5000
    rejected = [words for words, depth in (nested(random, 20) for _ in range(10 * n)) if depth == 3][: n // 2]
    drawn = [words for words, _ in lists(ListOps(3, sizes=(n, 1, 1)))]
    for measure in (len, evaluate, lambda words: words.count("]"), lambda words: words[:-1].index("]")):
        first, second = (np.array([measure(words) for words in some]) for some in (rejected, drawn))
        for q in (0.1, 0.25, 0.5, 0.75, 0.9):
            cut = np.quantile(second, q)
            assert (first <= cut).mean() == pytest.approx((second <= cut).mean(), abs=0.05)
        assert first.mean() == pytest.approx(second.mean(), abs=4 * second.std() * (1 / len(first) + 1 / n) ** 0.5)


@pytest.mark.parametrize(("depth", "mean", "longest"), [(10, 98, 400), (15, 188, 800)])
def test_lists_have_the_published_lengths(depth, mean, longest):
    lengths = [len(words) for words, _ in lists(ListOps(depth, sizes=(4000, 1, 1)))]
    assert np.mean(lengths) == pytest.approx(mean, rel=0.02)
    assert max(lengths) < longest


@pytest.mark.parametrize("depth", [1, 3, 10])
def test_distribution_of_answers_is_exact(depth):
    task = ListOps(depth, sizes=(20_000, 1, 1))
    counts = np.bincount([label for _, label in lists(task)], minlength=10)
    expected = 20_000 * task.distribution
    assert ((counts - expected) ** 2 / expected).sum() < 28, "chi squared with 9 degrees of freedom, p = 0.001"


def test_evaluator_on_the_original_test_set(data):
    examples = list(read_examples(data / "listops" / "test_d20s.tsv.gz"))
    assert len(examples) == 10_000
    assert all(evaluate(words) == label for label, words in examples)


@pytest.mark.parametrize(
    "text", ["", "[MAX", "[MAX ]", "[MAX 1", "1 2", "]", "[MAX 1 ] ]", "[SUM 1 ]", "12", "[MAX ² ]"]
)
def test_evaluator_refuses_invalid_lists(text):
    with pytest.raises(InputError, match="list must be one whole list"):
        evaluate(text.split())


# Associative recall, state tracking


def test_recall_queries_each_key_once_with_its_value_as_target():
    task = AssociativeRecall(vocab_size=64, length=48, pairs=6)
    batch = next(task.train_batches(200, 0))
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        memory = dict(zip(row[:12:2], row[1:12:2], strict=True))
        assert len(memory) == len(set(memory.values())) == 6
        assert all(0 < key < 32 <= value < 64 for key, value in memory.items())
        queries = {row[t]: target for t, target in enumerate(targets) if target != IGNORE}
        assert queries == memory
        assert sum(token != 0 for token in row[12:]) == 6


def test_recall_gaps_follow_the_power_law():
    """With one pair, the gap g has the normalised probability (g + 1)^-0.99."""
    batch = next(AssociativeRecall(vocab_size=32, length=66, pairs=1).train_batches(40_000, 0))
    gaps = ((batch.targets != IGNORE).int().argmax(1) - 2) // 2
    p = np.arange(1, 33) ** -0.99
    np.testing.assert_allclose(gaps.bincount(minlength=32) / 40_000, p / p.sum(), atol=0.008)


def test_keys_of_recall_are_uniform():
    batch = next(AssociativeRecall(vocab_size=12, length=20, pairs=5).train_batches(6000, 0))
    first = batch.inputs[:, 0].bincount(minlength=6)[1:] / 6000
    assert first.tolist() == pytest.approx([0.2] * 5, abs=0.02)


def test_parity_is_the_sum_of_ones_modulo_2():
    batch = next(StateTracking(length=30).train_batches(20, 0))
    assert torch.equal(batch.targets, batch.inputs.cumsum(1) % 2)


@pytest.mark.parametrize(("group", "order"), [("s3", 6), ("a5", 60), ("s5", 120)])
def test_products_are_a_non_commutative_group(group, order):
    product = StateTracking(group)._product
    assert product.shape == (order, order)
    assert (np.sort(product, axis=0) == np.arange(order)[:, None]).all()
    assert (product[0] == np.arange(order)).all()
    assert not (product == product.T).all()
    x, y, z = np.random.default_rng(0).integers(0, order, (3, 500))
    assert (product[product[x, y], z] == product[x, product[y, z]]).all()


# Glimpses


def test_glimpses_are_quadrants_and_their_quarters():
    image = torch.arange(8 * 8).view(1, 8, 8)
    glimpses = cut_glimpses(image.byte(), 2)[0].view(24, 2, 2) / 4
    for quadrant, (row, column) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)]):
        part = image[0, row : row + 4, column : column + 4].float()
        coarse = torch.stack([part[i : i + 2, j : j + 2].mean() for i in (0, 2) for j in (0, 2)]).view(2, 2)
        details = [part[i : i + 2, j : j + 2] for i in (0, 2) for j in (0, 2)]
        for got, want in zip(glimpses[6 * quadrant :], [coarse, *details, coarse], strict=False):
            assert torch.equal(got, want)


def test_mnist_has_all_images_and_labels(data):
    task = MNISTGlimpses()
    assert [len(part.targets) for part in task.sets] == [50_000, 10_000, 10_000]
    train = torch.cat([task.sets.train.targets, task.sets.validation.targets])
    assert train.flatten().bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert task.sets.test.targets.flatten().bincount().tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    assert task.sets.test.targets[:5, 0].tolist() == [7, 2, 1, 0, 4]


def test_images_are_reconstructed_from_glimpses(data):
    task = MNISTGlimpses()
    images = task.images(next(task.test(9)).inputs)
    header, size = 16, 9 * 28 * 28
    pixels = gzip.decompress((data / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())[header : header + size]
    assert (images * 255).round().flatten().tolist() == list(pixels)


def test_faces_have_the_labels_of_the_archive(data):
    task = FaceGlimpses(label="expression")
    labels = Counter(face.label for face in task.faces)
    assert labels == {"neutral": 158, "happy": 155, "sad": 156, "angry": 155}
    assert [len(people) for people in task.people] == [12, 4, 4]
    assert len({name for people in task.people for name in people}) == 20
    assert next(task.train_batches(3, 0)).inputs.shape == (3, 24, 144)
    assert FaceGlimpses(data_seed=1).people != task.people


def test_a_linear_classifier_learns_the_pose_of_unseen_people(data):
    """This checks that labels, splits and pixels match."""
    task = FaceGlimpses()
    train, test = next(task.train_batches(1000, 0)), next(task.test(1000))
    x, z = (task.images(batch.inputs)[:, ::2, ::2].flatten(1).double() for batch in (train, test))
    y = torch.nn.functional.one_hot(train.targets[:, 0]).double()
    weights = torch.linalg.solve(x.T @ x + 10 * torch.eye(x.shape[1]), x.T @ y)
    right = ((z @ weights).argmax(1) == test.targets[:, 0]).double().mean()
    assert right > 0.6


def test_ridge_regression_equals_penalised_least_squares():
    """The test solves the primal problem, the code solves the dual problem."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(3, 5))
    labels = [random.integers(0, 3, n) for n in (40, 30, 200)]
    features = [centres[y] + random.normal(size=(len(y), 5)) for y in labels]
    x, hot = features[0] - features[0].mean(0), np.eye(3)[labels[0]]

    def accuracy(strength, part):
        penalty = strength * np.trace(x @ x.T) / len(x)
        weights = np.linalg.solve(x.T @ x + penalty * np.eye(5), x.T @ (hot - hot.mean(0)))
        scores = (features[part] - features[0].mean(0)) @ weights + hot.mean(0)
        return (scores.argmax(1) == labels[part]).mean()

    best = max(STRENGTHS, key=lambda strength: accuracy(strength, 1))
    assert ridge_accuracy(features, labels) == accuracy(best, 2)
    assert ridge_accuracy(features, labels) > 0.5


def test_oriented_gradients_depend_on_direction_not_on_brightness():
    rows, columns = np.mgrid[:24, :24].astype(float)
    down, across, slanted = (oriented_gradients(image[None])[0] for image in (rows, columns, rows + columns))
    histograms = [part.reshape(2, 2, 4, 9) for part in (across, down, slanted)]
    assert [{int(n) for n in part.argmax(-1).flat} for part in histograms] == [{0}, {4}, {2}]
    assert np.allclose([part.sum() for part in histograms], 2 * 2 * 4 / 2), "blocks of length 1, in four equal cells"
    assert np.allclose(oriented_gradients(3 * rows[None] + 1)[0], down)
    assert not oriented_gradients(np.ones((1, 24, 24))).any()


@pytest.mark.parametrize("task", [AssociativeRetrieval(sizes=(50, 1, 1)), Retrieval(5)], ids=["fixed", "fresh"])
def test_training_batches_can_start_at_any_step(task):
    """Starts inside and at the end of epochs and of groups of batches."""
    whole = list(islice(task.train_batches(8, 5), 40))
    for start in (0, 3, 7, 13, 15, 16, 17, 33):
        for got, want in zip(task.train_batches(8, 5, start), whole[start:], strict=False):
            assert torch.equal(got.inputs, want.inputs)
            assert torch.equal(got.targets, want.targets)
