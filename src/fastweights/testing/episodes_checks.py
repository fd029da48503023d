"""Checks of tasks with episodes, one per guarantee. Each takes `make`, a function that builds the task."""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, product
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from fastweights.core.measurements import sort_measurements
from fastweights.tasks import Batch, combine
from fastweights.tasks.kinds._classes import QUARTER_TURNS
from fastweights.tasks.kinds.episodes import Episodes, number_instances
from fastweights.testing.labelled_checks import B, first_batches
from fastweights.testing.labelled_checks import check_seeds_differ as check_seeds_differ
from fastweights.testing.labelled_checks import fingerprints as fingerprints
from fastweights.testing.refusals import assert_bad_options_are_refused, assert_refused

Make = Callable[..., Episodes]
SPLITS = range(3)


def some(task: Episodes) -> Iterator[Batch]:
    """A batch of every split."""
    yield from (next(task.train_batches(B, 0)), next(task.validation(B)), next(task.test(B)))


def check_seeds_reproduce(make: Make) -> None:
    """A seed gives the same episodes in two tasks, from any step, with any number of threads."""
    one, other = make(), make(workers=3)
    batches = first_batches(one, 4, seed=3)
    assert batches == first_batches(other, 4, seed=3), "two tasks with one seed differ"
    assert batches[2:] == first_batches(other, 2, seed=3, start=2), "episodes depend on the first step"
    assert batches == first_batches(make(workers=0), 4, seed=3), "episodes depend on the number of threads"
    assert fingerprints(one) == fingerprints(other), "the validation or the test set differs"


def check_episodes_do_not_depend_on_batch_size(make: Make) -> None:
    """The episodes of a fixed set do not depend on the size of its batches."""
    task = make()
    sizes = (1, 7)
    targets = [torch.cat([b.targets for b in islice(task.test(size), 14 // size)]) for size in sizes]
    assert torch.equal(targets[0][:14], targets[1][:14]), "episodes depend on the batch size"
    assert sum(len(b.targets) for b in task.test(64)) == task.test_size, (
        "the number of test episodes is not `test_size`"
    )


def check_classes_are_disjoint_over_splits(make: Make) -> None:
    """No class and no image is in two splits."""
    task = make()
    for parts in zip(*(task.classes(split) for split in SPLITS), strict=True):
        image_set = parts[0].image_set
        assert all(part.image_set.digest == image_set.digest for part in parts), "splits have different image sets"
        chosen = np.concatenate([part.chosen for part in parts])
        assert len(set(chosen.tolist())) == len(chosen), "a class is in two splits"
        assert chosen.max() < len(image_set.names) == len(image_set.starts) - 1, "a class index is out of range"
        assert image_set.starts[-1] == len(image_set.images), "an image belongs to no class"


def check_shapes_types_and_ranges(make: Make) -> None:
    """Inputs have the fields, shapes and dtypes of `EpisodeInputs`, within the sizes that the task states."""
    task = make()
    channels, side = task.shape
    for batch in some(task):
        images, labels, sources = batch.inputs
        n, steps = labels.shape
        assert images.dtype == torch.uint8, f"images are {images.dtype}"
        assert list(images.shape) == [n, steps, channels, side, side], f"images are {list(images.shape)}"
        assert sources.shape == labels.shape, "sources and labels differ in shape"
        assert labels.dtype == sources.dtype == batch.targets.dtype == torch.int64, (
            "labels, sources and targets must be int64"
        )
        assert 0 <= labels.min() <= labels.max() < task.codes, "a label code is out of range"
        assert 0 <= sources.min() <= sources.max() < len(task.normalisations), "a data set is out of range"
        assert batch.targets.shape[1] <= steps, "there are more targets than steps"
        assert batch.targets.min() >= 0, "a target is negative"


def check_images_of_an_episode_differ(make: Make) -> None:
    """No image occurs twice in an episode, so that the query is not among the examples."""
    task = make()
    for batch in some(task):
        for images in batch.inputs.images:
            assert len({_key(image.numpy()) for image in images}) == len(images), "an image occurs twice"


def check_labels_are_consistent(make: Make) -> None:
    """Each class of an episode has one label, and the assignment differs between episodes."""
    task = make()
    orders = set()
    for batch in some(task):
        for images, labels in zip(batch.inputs.images, right_labels(task, batch), strict=True):
            orders.add(tuple(labels.tolist()))
            classes = [class_of(task, image) for image in images]
            pairs = {(c, int(label)) for c, label in zip(classes, labels, strict=True) if c is not None}
            assert len({c for c, _ in pairs}) == len(pairs), "a class has two labels"
    assert len(orders) > 1, "all episodes have the same order of labels"


def right_labels(task: Episodes, batch: Batch) -> Tensor:
    """The correct label of each image `[B, T]`."""
    if task.labels == "delayed":
        return batch.targets
    return torch.cat([batch.inputs.labels[:, :-1], batch.targets], dim=1)


def class_of(task: Episodes, image: Tensor) -> str | None:
    """Class of an image by its pixels; None if two classes share the image, or none has it."""
    return _known(task).get(_key(image[: known_channels(task)].numpy()))


def _known(task: Episodes) -> dict[bytes, str | None]:
    if id(task) not in _CLASSES:
        _CLASSES.clear()
        _CLASSES[id(task)] = _by_pixels(task)
    return _CLASSES[id(task)]


_CLASSES: dict[int, dict[bytes, str | None]] = {}
"""Classes by pixels of the last task."""


def known_channels(task: Episodes) -> int:
    """Number of channels of the images in the data set."""
    return min(part.image_set.images.shape[1] for part in task.classes(0))


def _by_pixels(task: Episodes) -> dict[bytes, str | None]:
    names: dict[bytes, str | None] = {}
    for index, part in ((p, part) for split in SPLITS for p, part in enumerate(task.classes(split))):
        starts = part.image_set.starts
        for n, turn in product(part.chosen, range(part.turns)):
            name = f"{index} {part.image_set.names[n]} {turn}"
            for image in part.image_set.images[starts[n] : starts[n + 1], : known_channels(task)]:
                key = _key(np.rot90(image, turn, (1, 2)))
                names[key] = name if names.get(key, name) == name else None
    return names


def _key(image: np.ndarray) -> bytes:
    return hashlib.blake2b(image.tobytes(), digest_size=16).digest()


def check_labels_arrive_in_time(make: Make) -> None:
    """Synchronous labels come with their images, except for the query. Delayed labels come one step later."""
    task = make()
    for batch in some(task):
        labels, targets = batch.inputs.labels, batch.targets
        if task.labels == "synchronous":
            assert targets.shape[1] == 1, "an episode has more than one query"
            assert (labels[:, -1] == task.no_label).all(), "the label of the query is an input"
            counts = torch.stack([(labels[:, :-1] == label).sum(1) for label in range(task.ways)])
            assert (counts == task.shots).all(), "a class does not have `shots` examples"
        else:
            assert targets.shape == labels.shape, "an image has no target"
            assert (labels[:, 0] == task.no_label).all(), "the first image comes with a label"
            assert torch.equal(labels[:, 1:], targets[:, :-1] % task.ways), "labels do not come one step later"


def check_no_label_has_its_code(make: Make) -> None:
    """An image without label has the code of class 0 (published) or a code of its own (corrected)."""
    published, corrected = make(unlabelled="published"), make(unlabelled="corrected")
    assert (published.codes, published.no_label) == (published.ways, 0)
    assert (corrected.codes, corrected.no_label) == (corrected.ways + 1, corrected.ways)
    one, other = next(published.test(B)), next(corrected.test(B))
    assert torch.equal(one.targets, other.targets), "the code for no label changes the episodes"


def check_evaluation_uses_the_specified_images(make: Make) -> None:
    """The published evaluation uses the first images of each class, the shuffled one uses all."""
    first = _places(make(evaluation="published"))
    anywhere = _places(make(evaluation="shuffled"))
    assert max(first) < make().per_class, "an image is not among the first of its class"
    assert max(anywhere) >= make().per_class, "all images are among the first of their class"


def _places(task: Episodes) -> set[int]:
    """Indices within their classes of the images of some test episodes."""
    part = task.classes(2)[0]
    starts = part.image_set.starts
    index_of: dict[bytes, int] = {}
    for n, turn in product(part.chosen, range(part.turns)):
        for index, image in enumerate(part.image_set.images[starts[n] : starts[n + 1]]):
            index_of.setdefault(_key(np.rot90(image, turn, (1, 2))), index)
    channels = part.image_set.images.shape[1]
    shown = next(task.test(2 * B)).inputs
    keys = (_key(image[:channels].numpy()) for image in shown.images[shown.sources == 0])
    return {index_of[key] for key in keys}


def check_only_training_images_are_shifted(make: Make) -> None:
    """Each training image is shifted separately by up to `shift` pixels per axis, with its edge repeated."""
    most, side = 2, make().shape[1]
    (one, *fixed), (other, *same) = some(make()), some(make(shift=most))
    for batch, again in zip(fixed, same, strict=True):
        assert torch.equal(batch.inputs.images, again.inputs.images), "validation or test images are shifted"
    assert torch.equal(one.targets, other.targets), "shifting changes the choice of images"
    offsets = set()
    for still, moved in zip(one.inputs.images.flatten(0, 1), other.inputs.images.flatten(0, 1), strict=True):
        wide = np.pad(still.numpy(), ((0, 0), (most, most), (most, most)), mode="edge")
        shifts = product(range(2 * most + 1), repeat=2)
        matches = [(i, j) for i, j in shifts if np.array_equal(wide[:, i : i + side, j : j + side], moved.numpy())]
        assert matches, "an image is not a shifted training image"
        offsets.update(matches)
    assert len(offsets) > most, "all images have the same shift"


def check_only_training_classes_are_rotated(make: Make) -> None:
    """All training images of a class in an episode are rotated by the same number of quarter turns."""
    task = make(rotations=True)
    one, *fixed = some(task)
    turns = [
        _turns_of(task, images[labels == label])
        for images, labels in zip(one.inputs.images, right_labels(task, one), strict=True)
        for label in labels.unique()
    ]
    assert all(turns), "images of a class have different rotations"
    if all(part.turns == 1 for part in make().classes(0)):
        assert any(0 not in possible for possible in turns), "no class is rotated"
        for batch, again in zip(fixed, list(some(make()))[1:], strict=True):
            assert torch.equal(batch.inputs.images, again.inputs.images), "validation or test images are rotated"


def _turns_of(task: Episodes, images: Tensor) -> set[int]:
    """Quarter turns to the left by which all images can come from images of the task."""
    back = {turn: torch.rot90(images, -turn, (2, 3)) for turn in range(QUARTER_TURNS)}
    return {turn for turn, straight in back.items() if all(_is_known(task, image) for image in straight)}


def _is_known(task: Episodes, image: Tensor) -> bool:
    return _key(image[: known_channels(task)].numpy()) in _known(task)


def check_plain_view_has_every_image_once(make: Make) -> None:
    """The plain view of a split has every image once, with its class."""
    task = make()
    for split in SPLITS:
        plain, part = task.plain_images(split), task.classes(split)[0]
        counts = np.diff(part.image_set.starts)[part.chosen]
        assert len(plain) == counts.sum(), "the number of images differs"
        assert np.array_equal(np.bincount(plain.labels), counts), "the classes differ"
        assert plain.names == part.names, "the class names differ"
        image, label = plain[len(plain) - 1]
        assert image.dtype == torch.uint8, f"images are {image.dtype}"
        assert label == len(plain.names) - 1, "the last image has another class"


def check_correct_answers_score_perfectly(make: Make) -> None:
    """Correct answers have a loss of 0 and an accuracy of 1."""
    task = make()
    metrics = combine(task.metrics(task.perfect_outputs(b.targets), b.targets) for b in islice(task.test(50), 4))
    assert abs(metrics["loss"].value) < 1e-9, f"correct answers have a loss of {metrics['loss'].value}"
    assert metrics["accuracy"].value == 1.0, f"correct answers have an accuracy of {metrics['accuracy'].value}"


def check_chance_level_is_the_score_of_a_guess(make: Make) -> None:
    """A random guess reaches the stated chance level, within four standard errors."""
    task = make()
    metrics = combine(task.metrics(task.baseline_outputs(b.targets), b.targets) for b in islice(task.test(100), 10))
    p, n = task.chance["accuracy"], metrics["accuracy"].count
    assert metrics.keys() == task.chance.keys(), "chance is stated for other metrics"
    assert abs(metrics["accuracy"].value - p) <= 4 * sqrt(p * (1 - p) / n) + 1e-9, "the accuracy of a guess differs"
    assert abs(metrics["loss"].value - task.chance["loss"]) < 1e-4, "the loss of a guess differs"


def check_metrics_do_not_depend_on_batches(make: Make) -> None:
    """Metrics do not depend on the batches of the set, and `loss` returns the metric of that name."""
    task = make()
    whole = next(task.test(4 * B))
    outputs = torch.randn(*whole.targets.shape, task.ways, generator=torch.Generator().manual_seed(0))
    together = task.summary(task.details(outputs, whole.targets))
    for cut in (1, B, B + 1):
        pairs = zip(outputs.split(cut), whole.targets.split(cut), strict=True)
        parts = task.summary(combine(task.details(*pair) for pair in pairs))
        for name, value in together.items():
            assert abs(parts[name] - value) < 1e-5 * max(1, abs(value)), f"{name} depends on the batches"
    assert abs(float(task.loss(outputs, whole.targets)) - together["loss"]) < 1e-4, "`loss` differs from the metric"


def check_interval_is_over_episodes(make: Make) -> None:
    """The interval is 1.96 standard errors of the mean accuracy over episodes."""
    task = make()
    batch = next(task.test(4 * B))
    outputs = torch.randn(*batch.targets.shape, task.ways, generator=torch.Generator().manual_seed(0))
    accuracies = (outputs.argmax(-1) == batch.targets % task.ways).double().mean(1)
    expected = 1.96 * float(accuracies.std(correction=0)) / sqrt(len(accuracies))
    assert abs(task.summary(task.details(outputs, batch.targets))["interval"] - expected) < 1e-9


def check_accuracy_is_split_by_instance(make: Make) -> None:
    """Accuracy is reported per occurrence of a class: a model that only remembers is wrong at the first."""
    task = make()
    if task.labels == "synchronous":
        return
    targets = next(task.test(B)).targets
    outputs = torch.where(
        (number_instances(targets) > 1)[..., None], task.perfect_outputs(targets), -task.perfect_outputs(targets)
    )
    for group, members in sort_measurements(task.summary(task.details(outputs, targets))).details.items():
        for k, value in members.items():
            assert k == "all" or value == (0.0 if k == "1" else 1.0), f"{group} {k} is {value}"


def check_bad_options_are_refused(make: Make) -> None:
    """Invalid options, empty batches and outputs of another shape raise an `InputError`."""
    assert_bad_options_are_refused(make)
    task = make()
    for arguments in ((0, 0, 0), (1, -1, 0), (1, 0, -1)):
        assert_refused(partial(task.train_batches, *arguments), f"train_batches{arguments}")
    assert_refused(lambda: next(task.validation(0)), "validation(0)")
    assert_refused(lambda: next(make(ways=10_000).test(1)), "more ways than classes")
    assert_refused(lambda: next(make(shots=10_000).test(1)), "more shots than images")
    targets = next(task.test(B)).targets
    assert_refused(lambda: task.loss(task.baseline_outputs(targets)[..., :-1], targets), "outputs with a class too few")
