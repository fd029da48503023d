"""Guarantees of every task of episodes, one check each, as functions of `make`, which builds a task."""

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
    """A seed gives the same episodes in two tasks, from any step on, however many threads draw them."""
    one, other = make(), make(workers=3)
    batches = first_batches(one, 4, seed=3)
    assert batches == first_batches(other, 4, seed=3), "the same seed gives other episodes"
    assert batches[2:] == first_batches(other, 2, seed=3, start=2), "a start in the middle gives other episodes"
    assert batches == first_batches(make(workers=0), 4, seed=3), "without threads there are other episodes"
    assert fingerprints(one) == fingerprints(other), "the validation or the test set changes"


def check_batches_can_be_cut_anywhere(make: Make) -> None:
    """The episodes of a fixed set do not depend on the size of its batches."""
    task = make()
    sizes = (1, 7)
    targets = [torch.cat([b.targets for b in islice(task.test(size), 14 // size)]) for size in sizes]
    assert torch.equal(targets[0][:14], targets[1][:14]), "batches of another size hold other episodes"
    assert sum(len(b.targets) for b in task.test(64)) == task.test_size, "the test has another size"


def check_classes_are_disjoint_over_splits(make: Make) -> None:
    """No class is in two splits, and no picture is."""
    task = make()
    for parts in zip(*(task.classes(split) for split in SPLITS), strict=True):
        pictures = parts[0].pictures
        assert all(part.pictures.digest == pictures.digest for part in parts), "splits are of other pictures"
        chosen = np.concatenate([part.chosen for part in parts])
        assert len(set(chosen.tolist())) == len(chosen), "a class is in two splits"
        assert chosen.max() < len(pictures.names) == len(pictures.starts) - 1, "a class is not there"
        assert pictures.starts[-1] == len(pictures.images), "a picture is in no class"


def check_shapes_types_and_ranges(make: Make) -> None:
    """Episodes are what `Shown` says, within the sizes that the task states."""
    task = make()
    channels, side = task.shape
    for batch in some(task):
        images, labels, sources = batch.inputs
        n, steps = labels.shape
        assert images.dtype == torch.uint8, f"pictures are {images.dtype}"
        assert list(images.shape) == [n, steps, channels, side, side], f"pictures are {list(images.shape)}"
        assert sources.shape == labels.shape, "not every picture is from somewhere"
        assert labels.dtype == sources.dtype == batch.targets.dtype == torch.int64, "labels are no whole numbers"
        assert 0 <= labels.min() <= labels.max() < task.codes, "a label code is out of range"
        assert 0 <= sources.min() <= sources.max() < len(task.normalisations), "a data set is out of range"
        assert batch.targets.shape[1] <= steps, "there are more targets than steps"
        assert batch.targets.min() >= 0, "something is not asked for"


def check_no_picture_is_in_an_episode_twice(make: Make) -> None:
    """No image occurs twice, so that the query is none of the examples."""
    task = make()
    for batch in some(task):
        for images in batch.inputs.images:
            assert len({_key(image.numpy()) for image in images}) == len(images), "a picture is there twice"


def check_labels_are_consistent(make: Make) -> None:
    """Pictures of one class have one label, and those of two classes two, in an order of their own every time."""
    task = make()
    orders = set()
    for batch in some(task):
        for images, labels in zip(batch.inputs.images, right_labels(task, batch), strict=True):
            orders.add(tuple(labels.tolist()))
            classes = [class_of(task, image) for image in images]
            pairs = {(c, int(label)) for c, label in zip(classes, labels, strict=True) if c is not None}
            assert len({c for c, _ in pairs}) == len(pairs), "a class has two labels"
    assert len(orders) > 1, "the order is always the same"


def right_labels(task: Episodes, batch: Batch) -> Tensor:
    """The label of every picture `[B, T]`, and of which data set."""
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
    return min(part.pictures.images.shape[1] for part in task.classes(0))


def _by_pixels(task: Episodes) -> dict[bytes, str | None]:
    names: dict[bytes, str | None] = {}
    for index, part in ((p, part) for split in SPLITS for p, part in enumerate(task.classes(split))):
        starts = part.pictures.starts
        for n, turn in product(part.chosen, range(part.turns)):
            name = f"{index} {part.pictures.names[n]} {turn}"
            for image in part.pictures.images[starts[n] : starts[n + 1], : known_channels(task)]:
                key = _key(np.rot90(image, turn, (1, 2)))
                names[key] = name if names.get(key, name) == name else None
    return names


def _key(image: np.ndarray) -> bytes:
    return hashlib.blake2b(image.tobytes(), digest_size=16).digest()


def check_labels_are_told_when_they_should_be(make: Make) -> None:
    """Synchronous: with their pictures, and none with the one to name. Delayed: shifted by exactly one."""
    task = make()
    for batch in some(task):
        labels, targets = batch.inputs.labels, batch.targets
        if task.labels == "synchronous":
            assert targets.shape[1] == 1, "more than one picture is to be named"
            assert (labels[:, -1] == task.no_label).all(), "the answer is an input"
            counts = torch.stack([(labels[:, :-1] == label).sum(1) for label in range(task.ways)])
            assert (counts == task.shots).all(), "a class has another number of examples"
        else:
            assert targets.shape == labels.shape, "not every picture is to be named"
            assert (labels[:, 0] == task.no_label).all(), "the first image comes with a label"
            assert torch.equal(labels[:, 1:], targets[:, :-1] % task.ways), "labels do not come one step later"


def check_no_label_has_the_code_it_says(make: Make) -> None:
    """The code is that of class 0 as published, or one that no class has."""
    published, corrected = make(unlabelled="published"), make(unlabelled="corrected")
    assert (published.codes, published.no_label) == (published.ways, 0)
    assert (corrected.codes, corrected.no_label) == (corrected.ways + 1, corrected.ways)
    one, other = next(published.test(B)), next(corrected.test(B))
    assert torch.equal(one.targets, other.targets), "the code for no label changes the episodes"


def check_evaluation_is_of_the_pictures_it_says(make: Make) -> None:
    """Evaluation uses the first images of a class as published, otherwise any."""
    first = _places(make(evaluation="published"))
    anywhere = _places(make(evaluation="shuffled"))
    assert max(first) < make().per_class, "a picture is not among the first"
    assert max(anywhere) >= make().per_class, "all pictures are among the first"


def _places(task: Episodes) -> set[int]:
    """Indices within their classes of the images of some test episodes."""
    part = task.classes(2)[0]
    starts = part.pictures.starts
    index_of: dict[bytes, int] = {}
    for n, turn in product(part.chosen, range(part.turns)):
        for index, image in enumerate(part.pictures.images[starts[n] : starts[n + 1]]):
            index_of.setdefault(_key(np.rot90(image, turn, (1, 2))), index)
    channels = part.pictures.images.shape[1]
    shown = next(task.test(2 * B)).inputs
    keys = (_key(image[:channels].numpy()) for image in shown.images[shown.sources == 0])
    return {index_of[key] for key in keys}


def check_only_training_pictures_are_moved(make: Make) -> None:
    """Each training image is shifted separately by up to `shift` pixels per axis, with its edge repeated."""
    most, side = 2, make().shape[1]
    (one, *fixed), (other, *same) = some(make()), some(make(shift=most))
    for batch, again in zip(fixed, same, strict=True):
        assert torch.equal(batch.inputs.images, again.inputs.images), "pictures are moved where they are held out"
    assert torch.equal(one.targets, other.targets), "other pictures are drawn"
    offsets = set()
    for still, moved in zip(one.inputs.images.flatten(0, 1), other.inputs.images.flatten(0, 1), strict=True):
        wide = np.pad(still.numpy(), ((0, 0), (most, most), (most, most)), mode="edge")
        shifts = product(range(2 * most + 1), repeat=2)
        matches = [(i, j) for i, j in shifts if np.array_equal(wide[:, i : i + side, j : j + side], moved.numpy())]
        assert matches, "a picture is not one that was moved"
        offsets.update(matches)
    assert len(offsets) > most, "all pictures are moved alike"


def check_only_training_classes_are_turned(make: Make) -> None:
    """All pictures of a class in an episode by the same quarter turns; where every split has them turned, by any."""
    task = make(rotations=True)
    one, *fixed = some(task)
    turns = [
        _turns_of(task, images[labels == label])
        for images, labels in zip(one.inputs.images, right_labels(task, one), strict=True)
        for label in labels.unique()
    ]
    assert all(turns), "a class is turned in two ways, or to something else"
    if all(part.turns == 1 for part in make().classes(0)):
        assert any(0 not in possible for possible in turns), "no class is turned"
        for batch, again in zip(fixed, list(some(make()))[1:], strict=True):
            assert torch.equal(batch.inputs.images, again.inputs.images), "pictures are turned where they are held out"


def _turns_of(task: Episodes, images: Tensor) -> set[int]:
    """Quarter turns to the left by which all images can come from images of the task."""
    back = {turn: torch.rot90(images, -turn, (2, 3)) for turn in range(QUARTER_TURNS)}
    return {turn for turn, straight in back.items() if all(_is_known(task, image) for image in straight)}


def _is_known(task: Episodes, image: Tensor) -> bool:
    return _key(image[: known_channels(task)].numpy()) in _known(task)


def check_the_plain_view_has_every_picture_once(make: Make) -> None:
    """The plain view of a split has every image once, with its class."""
    task = make()
    for split in SPLITS:
        plain, part = task.plain(split), task.classes(split)[0]
        counts = np.diff(part.pictures.starts)[part.chosen]
        assert len(plain) == counts.sum(), "it has another number of pictures"
        assert np.array_equal(np.bincount(plain.labels), counts), "its classes are others"
        assert plain.names == part.names, "its names are others"
        image, label = plain[len(plain) - 1]
        assert image.dtype == torch.uint8, f"its pictures are {image.dtype}"
        assert label == len(plain.names) - 1, "its last picture is another"


def check_the_truth_scores_perfectly(make: Make) -> None:
    """The right answers have no loss, and an accuracy of 1."""
    task = make()
    metrics = combine(task.metrics(task.truth(b.targets), b.targets) for b in islice(task.test(50), 4))
    assert abs(metrics["loss"].value) < 1e-9, f"the truth has a loss of {metrics['loss'].value}"
    assert metrics["accuracy"].value == 1.0, f"the truth has an accuracy of {metrics['accuracy'].value}"


def check_chance_is_what_a_guess_scores(make: Make) -> None:
    """The chance level that the task states, within four standard deviations of the mean of so many answers."""
    task = make()
    metrics = combine(task.metrics(task.guess(b.targets), b.targets) for b in islice(task.test(100), 10))
    p, n = task.chance["accuracy"], metrics["accuracy"].count
    assert metrics.keys() == task.chance.keys(), "chance is stated for other metrics"
    assert abs(metrics["accuracy"].value - p) <= 4 * sqrt(p * (1 - p) / n) + 1e-9, "a guess scores something else"
    assert abs(metrics["loss"].value - task.chance["loss"]) < 1e-4, "the loss of a guess is another"


def check_metrics_of_parts_add_up(make: Make) -> None:
    """Cutting a set into other batches changes no number of a report, and the loss is the metric of that name."""
    task = make()
    whole = next(task.test(4 * B))
    outputs = torch.randn(*whole.targets.shape, task.ways, generator=torch.Generator().manual_seed(0))
    together = task.summary(task.details(outputs, whole.targets))
    for cut in (1, B, B + 1):
        pairs = zip(outputs.split(cut), whole.targets.split(cut), strict=True)
        parts = task.summary(combine(task.details(*pair) for pair in pairs))
        for name, value in together.items():
            assert abs(parts[name] - value) < 1e-5 * max(1, abs(value)), f"{name} does not add up"
    assert abs(float(task.loss(outputs, whole.targets)) - together["loss"]) < 1e-4, "loss is another than its metric"


def check_the_interval_is_that_of_the_mean_over_episodes(make: Make) -> None:
    """1.96 standard deviations of an episode's accuracy, divided by the root of their number."""
    task = make()
    batch = next(task.test(4 * B))
    outputs = torch.randn(*batch.targets.shape, task.ways, generator=torch.Generator().manual_seed(0))
    accuracies = (outputs.argmax(-1) == batch.targets % task.ways).double().mean(1)
    expected = 1.96 * float(accuracies.std(correction=0)) / sqrt(len(accuracies))
    assert abs(task.summary(task.details(outputs, batch.targets))["interval"] - expected) < 1e-9


def check_instances_are_told_apart(make: Make) -> None:
    """A model that only remembers gets the first image of every class wrong and all others right."""
    task = make()
    if task.labels == "synchronous":
        return
    targets = next(task.test(B)).targets
    outputs = torch.where((number_instances(targets) > 1)[..., None], task.truth(targets), -task.truth(targets))
    for group, members in sort_measurements(task.summary(task.details(outputs, targets))).details.items():
        for k, value in members.items():
            assert k == "all" or value == (0.0 if k == "1" else 1.0), f"{group} {k} is {value}"


def check_bad_options_are_refused(make: Make) -> None:
    """Numbers below their range, unknown names; batches of nothing; outputs of another shape."""
    assert_bad_options_are_refused(make)
    task = make()
    for arguments in ((0, 0, 0), (1, -1, 0), (1, 0, -1)):
        assert_refused(partial(task.train_batches, *arguments), f"train_batches{arguments}")
    assert_refused(lambda: next(task.validation(0)), "validation(0)")
    assert_refused(lambda: next(make(ways=10_000).test(1)), "more ways than classes")
    assert_refused(lambda: next(make(shots=10_000).test(1)), "more shots than pictures")
    targets = next(task.test(B)).targets
    assert_refused(lambda: task.loss(task.guess(targets)[..., :-1], targets), "outputs with a class too few")
