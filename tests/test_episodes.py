"""Episodes of a user's own pictures, of archives that cannot lie here, and of what is wrong with them."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from fastweights import InputError
from fastweights.core.metric import ACCURACY
from fastweights.models.few_shot_network import FewShotNetwork, Studied
from fastweights.registry import TASKS
from fastweights.tasks import ImageFolder, Mean, MissingFile, combine
from fastweights.tasks.data_sets.cifar_100 import ARCHIVE
from fastweights.tasks.kinds._classes import turned
from fastweights.tasks.kinds._draws import different
from fastweights.tasks.kinds._prototypes import prototype_loss
from fastweights.tasks.sources.pictures import cached
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
    made = {}
    for name, make in LAYOUTS.items():
        made[name] = tmp_path_factory.mktemp(name.replace(" ", "-"))
        make(made[name])
    return made


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pictures_of_one_s_own_keep_every_guarantee(layout, check, folders):
    own = {"folder": str(folders[layout]), "channels": 1 if layout == "grey" else 3}
    delayed = {"labels": "delayed", "shots": 3} if layout == "tables" else {}
    CHECKS[check](lambda **changes: ImageFolder(**{**OPTIONS, **own, **delayed, **changes}))


@pytest.fixture
def cifar(monkeypatch, tmp_path):
    """An archive in the layout of CIFAR-100's binary version, with other pictures."""
    from fastweights.tasks import cifar_fs, fc100
    from fastweights.tasks.sources import cifar_100 as _cifar_100

    things = sorted({*cifar_fs.VALIDATION, *cifar_fs.TEST})
    groups = sorted({*(thing.partition("/")[0] for thing in things), *fc100.VALIDATION, *fc100.TEST, "trees"})
    while len(things) < 100:
        things.append(f"{groups[len(things) % len(groups)]}/thing_{len(things)}")
    rng, records = np.random.default_rng(0), []
    for n, thing in enumerate(things):
        head = np.tile(np.array([groups.index(thing.partition("/")[0]), n], np.uint8), (22, 1))
        records.append(np.concatenate([head, rng.integers(0, 256, (22, 3072), dtype=np.uint8)], axis=1))
    whole = rng.permutation(np.concatenate(records))
    names = {"coarse": groups, "fine": [thing.partition("/")[2] for thing in things]}
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
def test_parts_of_cifar_100_keep_every_guarantee(name, cifar):
    for check in CHECKS.values():
        check(lambda **changes: TASKS.load(name)(**{"test_size": 60, "validation_size": 20, **changes}))


def test_parts_of_cifar_100_have_as_many_classes_as_they_say(cifar):
    assert [len(TASKS.load("cifar-fs")().classes(part)[0]) for part in range(3)] == [64, 16, 20]


def wrong_split(folder):
    (folder / "val.csv").write_text("a,b\n1,2\n")
    return "val.csv must be a table that begins with filename,label, got 'a,b'"


def missing_table(folder):
    (folder / "test.csv").unlink()
    return "folder must be a folder with train.csv, val.csv, test.csv, got no test.csv"


def unknown_file(folder):
    (folder / "val.csv").write_text("filename,label\nimages/none.png,x\n")
    return "val.csv must be of files that are there, got 'images/none.png'"


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
    "spoil", [wrong_split, missing_table, unknown_file, class_in_two, corrupt, too_few, mixed_colours]
)
def test_bad_data_are_told_in_one_line(spoil, tmp_path):
    folder = tmp_path / "mine"
    tables(folder)
    wanted = spoil(folder)
    task = ImageFolder(folder=str(folder), **OPTIONS)
    with pytest.raises(InputError, match=wanted) as refused:
        [next(batches) for batches in (task.train_batches(2, 0), task.test(2))]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["pictures/x.zip", "pictures/x.tar.gz", "./x.tar.gz", "x.zip"])
def test_an_archive_is_split_as_its_folder_is(layout, name, folders, tmp_path):
    within, kind = name.partition("x.")[::2]
    path = tmp_path / f"packed.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in folders[layout].rglob("*.*"):
                archive.write(file, f"{within}{file.relative_to(folders[layout])}")
    else:
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folders[layout], arcname=within.rstrip("/"))
    given = {**OPTIONS, "channels": 1 if layout == "grey" else 3}
    packed, loose = (ImageFolder(**given, folder=str(place)) for place in (path, folders[layout]))
    for split in range(3):
        (one,), (other,) = packed.classes(split), loose.classes(split)
        assert one.pictures.digest == other.pictures.digest
        assert np.array_equal(one.chosen, other.chosen)


def test_a_folder_without_classes_and_one_of_another_kind_are_refused(tmp_path, folders):
    draw(tmp_path / "flat" / "1.png", np.random.default_rng(0))
    with pytest.raises(InputError, match="folder must be a folder with a sub-folder of images per class, got none"):
        ImageFolder(folder=str(tmp_path / "flat")).classes(0)
    with pytest.raises(InputError, match="folder must be a folder of grey images, got images in colours"):
        ImageFolder(folder=str(folders["folders"]), channels=1).classes(0)
    with pytest.raises(MissingFile, match="folder must be a folder of images, got ''"):
        ImageFolder().classes(0)


def test_what_is_kept_is_read_again_only_while_it_is_whole(tmp_path):
    path, made = tmp_path / "kept" / "x.npy", []

    def make():
        made.append(1)
        return np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)

    first, again = cached(path, make).copy(), cached(path, make)
    assert np.array_equal(first, again)
    assert len(made) == 1
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)
    assert np.array_equal(cached(path, make), first)
    assert len(made) == 2, "a changed file is used"


def test_different_numbers_are_different_and_all_as_likely():
    random = np.random.default_rng(0)
    found = different(random, np.full(20_000, 5), 3)
    assert all(len(set(row)) == 3 for row in found.tolist())
    counts = np.bincount(found @ [25, 5, 1], minlength=125)
    assert (counts > 0).sum() == 60
    assert abs(counts[counts > 0] / 20_000 - 1 / 60).max() < 4 * (1 / 60 / 20_000) ** 0.5


def test_turns_are_to_the_left_and_leave_others_as_they_are():
    image = np.array([[[1, 2], [3, 4]]], dtype=np.uint8)
    found = turned(np.stack([image] * 4), np.arange(4))
    assert found[:, 0].tolist() == [[[1, 2], [3, 4]], [[2, 4], [1, 3]], [[4, 3], [2, 1]], [[3, 1], [4, 2]]]


def test_metrics_of_batches_add_up_where_not_all_have_all():
    parts = [{"a": Mean(1.0, 2)}, {"b": Mean(3.0, 4)}, {"a": Mean(1.0, 2)}]
    assert combine(parts) == {"a": Mean(2.0, 4), "b": Mean(3.0, 4)}


def test_the_plain_view_is_a_data_set_for_torch(folders):
    plain = ImageFolder(folder=str(folders["folders"]), **OPTIONS).plain()
    images, labels = next(iter(torch.utils.data.DataLoader(plain, batch_size=5, shuffle=True)))
    assert images.shape == (5, 3, 12, 12)
    assert len(plain) == EACH * len(plain.names)
    assert labels.max() < len(plain.names)


@pytest.mark.parametrize("labels", ["synchronous", "delayed"])
def test_the_loss_of_a_vision_net_counts_by_its_weight_over_all_pictures(labels, folders):
    task = ImageFolder(**OPTIONS, folder=str(folders["folders"]), labels=labels)
    batch = next(task.train_batches(2, seed=1))
    told, targets = batch.inputs.labels, batch.targets
    own = targets if labels == "delayed" else torch.cat([told[:, :-1], targets], 1)
    outputs, features = torch.randn(*targets.shape, task.ways), torch.randn(*told.shape, 4)
    plain, apart = task.loss(outputs, targets), prototype_loss(features, own)
    assert apart > 0
    for weight in (0.0, 1.0, 2.0):
        found = task.loss(Studied(outputs, features, told, weight), targets)
        assert error(found, plain + weight * apart) < tolerance(torch.float32).forward


class Killed(BaseException):
    """Nothing is cleaned up."""


class UntilKilled(ImageFolder):
    """Batches end in the middle."""

    def train_batches(self, batch_size, seed, start=0):
        for n, batch in enumerate(super().train_batches(batch_size, seed, start), start=start):
            if n == 5:
                raise Killed
            yield batch


def learn(kind, path, options):
    torch.manual_seed(0)
    task, run = kind(**options), Run(path)
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1, "vision_options": {"width": 4, "dropout": 0.1}}
    model = FewShotNetwork(*task.arguments, **sizes, dropout=0.1, vision_loss=0.5)
    settings = Supervised(steps=8, batch_size=4, evaluate_every=3, learning_rate=1e-3, decay=6, device="cpu")
    begin = (lambda: None) if run.exists() else lambda: run.begin("x", {}, {}, ACCURACY)
    train(Session(make_fabric(settings), model, task, settings, run, begin=begin))
    return (path / "last.safetensors").read_bytes()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_run_goes_on_to_the_same_bits_however_many_threads_draw(workers, tmp_path, folders):
    options = {**OPTIONS, "side": 16, "folder": str(folders["folders"]), "labels": "delayed"}
    whole = learn(ImageFolder, tmp_path / "whole", options)
    with pytest.raises(Killed):
        learn(UntilKilled, tmp_path / "killed", {**options, "workers": workers})
    assert learn(ImageFolder, tmp_path / "killed", {**options, "workers": workers}) == whole
