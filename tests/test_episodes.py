"""Few-shot episodes of user-defined images and of archives, and errors in them."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from fastweights import InputError
from fastweights.core.metric import ACCURACY
from fastweights.models.few_shot_network import FewShotNetwork, OutputsAndFeatures
from fastweights.registry import TASKS
from fastweights.tasks import ImageFolder, Mean, MissingFile, combine
from fastweights.tasks.data_sets.cifar_100 import ARCHIVE
from fastweights.tasks.kinds._classes import rotated
from fastweights.tasks.kinds._draws import different
from fastweights.tasks.kinds._prototypes import prototype_loss
from fastweights.tasks.sources.image_sets import cached
from fastweights.testing import checks_in, episodes_checks
from fastweights.testing.tolerance import error, tolerance
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.loops.supervised import train
from fastweights.training.run_folder.run import Run
from fastweights.training.session import Session
from fastweights.training.settings.supervised import Supervised

CHECKS = checks_in(episodes_checks)
CLASSES, EACH = 30, 7
OPTIONS = {"ways": 3, "shots": 2, "side": 12, "test_size": 60, "validation_size": 20}


def draw(path, rng, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = rng.integers(0, 256, (14, 13, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


def classes(folder, prefix="", names=range(CLASSES), mode="RGB"):
    rng = np.random.default_rng(len(prefix))
    for name in names:
        for n in range(EACH):
            draw(folder / prefix / f"class {name}" / f"{n}.png", rng, mode)


def tables(folder):
    classes(folder, "images")
    for part, names in zip(("train", "val", "test"), np.split(np.arange(CLASSES), (18, 24)), strict=True):
        rows = [f"images/class {name}/{n}.png,{name}" for name in names for n in range(EACH)]
        (folder / f"{part}.csv").write_text("\n".join(["filename,label", *rows, ""]))


def split(folder):
    for part, names in zip(("train", "val", "test"), np.split(np.arange(CLASSES), (18, 24)), strict=True):
        classes(folder, part, names)


def grey(folder):
    classes(folder, mode="L")


LAYOUTS = {"folders": classes, "tables": tables, "split folders": split, "grey": grey}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder_of = {}
    for name, make in LAYOUTS.items():
        folder_of[name] = tmp_path_factory.mktemp(name.replace(" ", "-"))
        make(folder_of[name])
    return folder_of


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_user_defined_images_satisfy_every_guarantee(layout, check, folders):
    options = {"folder": str(folders[layout]), "channels": 1 if layout == "grey" else 3}
    delayed = {"labels": "delayed", "shots": 3} if layout == "tables" else {}
    CHECKS[check](lambda **changes: ImageFolder(**{**OPTIONS, **options, **delayed, **changes}))


@pytest.fixture
def cifar(monkeypatch, tmp_path):
    """An archive in the layout of CIFAR-100's binary version, with random images."""
    from fastweights.tasks import cifar_fs, fc100
    from fastweights.tasks.sources import cifar_100 as _cifar_100

    class_names = sorted({*cifar_fs.VALIDATION, *cifar_fs.TEST})
    groups = sorted({*(thing.partition("/")[0] for thing in class_names), *fc100.VALIDATION, *fc100.TEST, "trees"})
    while len(class_names) < 100:
        class_names.append(f"{groups[len(class_names) % len(groups)]}/thing_{len(class_names)}")
    rng, records = np.random.default_rng(0), []
    for n, thing in enumerate(class_names):
        head = np.tile(np.array([groups.index(thing.partition("/")[0]), n], np.uint8), (22, 1))
        records.append(np.concatenate([head, rng.integers(0, 256, (22, 3072), dtype=np.uint8)], axis=1))
    whole = rng.permutation(np.concatenate(records))
    names = {"coarse": groups, "fine": [thing.partition("/")[2] for thing in class_names]}
    files = {"train.bin": whole[:2000].tobytes(), "test.bin": whole[2000:].tobytes()}
    files |= {f"{kind}_label_names.txt": "\n".join(of_kind).encode() for kind, of_kind in names.items()}
    path = tmp_path / ARCHIVE.path
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    monkeypatch.setenv("FASTWEIGHTS_DATA", str(tmp_path))
    _cifar_100._read.cache_clear()
    return path


@pytest.mark.parametrize("name", ["cifar-fs", "fc100"])
def test_subsets_of_cifar_100_satisfy_every_guarantee(name, cifar):
    for check in CHECKS.values():
        check(lambda **changes: TASKS.load(name)(**{"test_size": 60, "validation_size": 20, **changes}))


def test_cifar_fs_has_64_16_and_20_classes(cifar):
    assert [len(TASKS.load("cifar-fs")().classes(part)[0]) for part in range(3)] == [64, 16, 20]


def wrong_split(folder):
    (folder / "val.csv").write_text("a,b\n1,2\n")
    return "val.csv must be a table that begins with filename,label, got 'a,b'"


def missing_table(folder):
    (folder / "test.csv").unlink()
    return "folder must be a folder with train.csv, val.csv, test.csv, got no test.csv"


def unknown_file(folder):
    (folder / "val.csv").write_text("filename,label\nimages/none.png,x\n")
    return "val.csv must be a table of existing files, got 'images/none.png'"


def class_in_two(folder):
    text = (folder / "val.csv").read_text()
    (folder / "val.csv").write_text(f"{text}images/class 0/0.png,0\n")
    return "class '0' must be in one split, got train and val"


def corrupt(folder):
    path = folder / "images" / "class 3" / "1.png"
    path.write_bytes(path.read_bytes()[:70])
    return r"images/class 3/1.png must be an image, got 70 bytes"


def too_few(folder):
    rows = [row for row in (folder / "test.csv").read_text().splitlines() if not row.endswith(",25") or "/0.png" in row]
    (folder / "test.csv").write_text("\n".join(rows))
    return "class '25' must be a class with at least 3 images for shots=2, got 1"


def mixed_colours(folder):
    draw(folder / "images" / "class 2" / "4.png", np.random.default_rng(0), "L")
    return r"images must be all grey or all in colours, got both, images/class 2/4.png is the first that differs"


@pytest.mark.parametrize(
    "damage", [wrong_split, missing_table, unknown_file, class_in_two, corrupt, too_few, mixed_colours]
)
def test_invalid_data_give_an_error_of_one_line(damage, tmp_path):
    folder = tmp_path / "mine"
    tables(folder)
    expected = damage(folder)
    task = ImageFolder(folder=str(folder), **OPTIONS)
    with pytest.raises(InputError, match=expected) as raised:
        [next(batches) for batches in (task.train_batches(2, 0), task.test(2))]
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["pictures/x.zip", "pictures/x.tar.gz", "./x.tar.gz", "x.zip"])
def test_archive_has_the_split_of_its_folder(layout, name, folders, tmp_path):
    within, kind = name.partition("x.")[::2]
    path = tmp_path / f"packed.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in folders[layout].rglob("*.*"):
                archive.write(file, f"{within}{file.relative_to(folders[layout])}")
    else:
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folders[layout], arcname=within.rstrip("/"))
    options = {**OPTIONS, "channels": 1 if layout == "grey" else 3}
    packed, unpacked = (ImageFolder(**options, folder=str(source)) for source in (path, folders[layout]))
    for split in range(3):
        (one,), (other,) = packed.classes(split), unpacked.classes(split)
        assert one.image_set.digest == other.image_set.digest
        assert np.array_equal(one.chosen, other.chosen)


def test_folder_without_classes_or_with_other_colours_is_rejected(tmp_path, folders):
    draw(tmp_path / "flat" / "1.png", np.random.default_rng(0))
    with pytest.raises(InputError, match="folder must be a folder with a sub-folder of images per class, got none"):
        ImageFolder(folder=str(tmp_path / "flat")).classes(0)
    with pytest.raises(InputError, match="folder must be a folder of grey images, got images in colours"):
        ImageFolder(folder=str(folders["folders"]), channels=1).classes(0)
    with pytest.raises(MissingFile, match="folder must be a folder of images, got ''"):
        ImageFolder().classes(0)


def test_cache_of_images_is_used_while_it_is_intact(tmp_path):
    path, calls = tmp_path / "kept" / "x.npy", []

    def make():
        calls.append(1)
        return np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)

    first, again = cached(path, make).copy(), cached(path, make)
    assert np.array_equal(first, again)
    assert len(calls) == 1
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)
    assert np.array_equal(cached(path, make), first)
    assert len(calls) == 2, "the changed file was used"


def test_draws_without_replacement_are_uniform():
    random = np.random.default_rng(0)
    draws = different(random, np.full(20_000, 5), 3)
    assert all(len(set(row)) == 3 for row in draws.tolist())
    counts = np.bincount(draws @ [25, 5, 1], minlength=125)
    assert (counts > 0).sum() == 60
    assert abs(counts[counts > 0] / 20_000 - 1 / 60).max() < 4 * (1 / 60 / 20_000) ** 0.5


def test_rotations_are_counter_clockwise():
    image = np.array([[[1, 2], [3, 4]]], dtype=np.uint8)
    result = rotated(np.stack([image] * 4), np.arange(4))
    assert result[:, 0].tolist() == [[[1, 2], [3, 4]], [[2, 4], [1, 3]], [[4, 3], [2, 1]], [[3, 1], [4, 2]]]


def test_metrics_of_batches_may_have_different_names():
    parts = [{"a": Mean(1.0, 2)}, {"b": Mean(3.0, 4)}, {"a": Mean(1.0, 2)}]
    assert combine(parts) == {"a": Mean(2.0, 4), "b": Mean(3.0, 4)}


def test_plain_view_is_a_data_set_for_torch(folders):
    data_set = ImageFolder(folder=str(folders["folders"]), **OPTIONS).plain_images()
    images, labels = next(iter(torch.utils.data.DataLoader(data_set, batch_size=5, shuffle=True)))
    assert images.shape == (5, 3, 12, 12)
    assert len(data_set) == EACH * len(data_set.names)
    assert labels.max() < len(data_set.names)


@pytest.mark.parametrize("labels", ["synchronous", "delayed"])
def test_loss_of_the_vision_encoder_has_its_weight(labels, folders):
    task = ImageFolder(**OPTIONS, folder=str(folders["folders"]), labels=labels)
    batch = next(task.train_batches(2, seed=1))
    labels_of_inputs, targets = batch.inputs.labels, batch.targets
    labels_of_images = targets if labels == "delayed" else torch.cat([labels_of_inputs[:, :-1], targets], 1)
    outputs, features = torch.randn(*targets.shape, task.ways), torch.randn(*labels_of_inputs.shape, 4)
    loss, extra_loss = task.loss(outputs, targets), prototype_loss(features, labels_of_images)
    assert extra_loss > 0
    for weight in (0.0, 1.0, 2.0):
        total = task.loss(OutputsAndFeatures(outputs, features, labels_of_inputs, weight), targets)
        assert error(total, loss + weight * extra_loss) < tolerance(torch.float32).forward


class Interrupt(BaseException):
    """An exception that no handler cleans up after."""


class InterruptedTask(ImageFolder):
    """Batches that end with an exception."""

    def train_batches(self, batch_size, seed, start=0):
        for n, batch in enumerate(super().train_batches(batch_size, seed, start), start=start):
            if n == 5:
                raise Interrupt
            yield batch


def train_run(kind, path, options):
    torch.manual_seed(0)
    task, run = kind(**options), Run(path)
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1, "vision_options": {"width": 4, "dropout": 0.1}}
    model = FewShotNetwork(*task.arguments, **sizes, dropout=0.1, vision_loss=0.5)
    settings = Supervised(steps=8, batch_size=4, evaluate_every=3, learning_rate=1e-3, decay=6, device="cpu")
    begin = (lambda: None) if run.exists() else lambda: run.begin("x", {}, {}, ACCURACY)
    train(Session(make_fabric(settings), model, task, settings, run, begin=begin))
    return (path / "last.safetensors").read_bytes()


@pytest.mark.parametrize("workers", [0, 2])
def test_interrupted_run_resumes_bit_identically_for_any_workers(workers, tmp_path, folders):
    options = {**OPTIONS, "side": 16, "folder": str(folders["folders"]), "labels": "delayed"}
    whole = train_run(ImageFolder, tmp_path / "whole", options)
    with pytest.raises(Interrupt):
        train_run(InterruptedTask, tmp_path / "killed", {**options, "workers": workers})
    assert train_run(ImageFolder, tmp_path / "killed", {**options, "workers": workers}) == whole
