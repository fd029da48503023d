"""`fastweights classify`: user-defined classes from examples in the context of a trained model."""

import re
from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image

import fastweights as library
from fastweights import InputError, cli
from fastweights.experiments.adaptation import adapt
from fastweights.report.png import png
from fastweights.tasks.sequential_adaptation import SequentialAdaptation
from fastweights.tasks.sources.images import read_channels
from fastweights.testing.tolerance import tolerance

RUN = "runs/irie2022/table-1/smoke/{}/{}/seed-1"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data_cache):
    """Runs with synchronous and with delayed labels; skips without Omniglot."""
    from conftest import real_data

    folder = tmp_path_factory.mktemp("adapt")
    with pytest.MonkeyPatch.context() as patch:
        real_data.__wrapped__(patch, data_cache)
        patch.chdir(folder)
        models = ["--models", "srwm", "lstm", "snail"]
        columns = ["--columns", "omniglot-1", "omniglot-delayed"]
        if cli.main(["reproduce", "irie2022/table-1", "--preset", "smoke", *models, *columns]) != 0:
            pytest.skip("no data")
    return folder


@pytest.fixture
def image_folder(tmp_path):
    """Three classes of two images, and two images to classify; of several formats, sizes and modes."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "mine"
    for name, mode in {"a <b>": "L", "boat": "RGB", "cup": "1"}.items():
        (folder / name).mkdir(parents=True)
        for n in range(2):
            pixels = rng.integers(0, 256, (30 + n, 40), dtype=np.uint8)
            Image.fromarray(pixels).convert(mode).save(folder / name / f"{n}.png")
    for name in ("x.png", "y.jpg"):
        Image.fromarray(rng.integers(0, 256, (50, 50, 3), dtype=np.uint8)).save(folder / name)
    (folder / "notes.txt").write_text("no image")
    return folder


def test_model_trained_on_a_folder_classifies_images_of_another(image_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    for name, n in product(range(15), range(3)):
        (tmp_path / "many" / str(name)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(f"many/{name}/{n}.png")
    train = ["train", "few-shot", "--preset", "smoke", "many", "--ways", "3", "--shots", "2"]
    assert cli.main([*train, "--layer", "delta-rnn", "--run", "own"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"step +4  train loss .* validation loss .*, accuracy .* left", output)
    assert re.search(r"accuracy on test data: \S+ ± \S+ \(chance 0.3333\)", output)
    assert cli.main(["classify", "own", str(image_folder), "--output", "own.html"]) == 0
    assert "x.png: " in capsys.readouterr().out
    assert cli.main([*train, "--grey", "--run", "other"]) == 2
    assert "folder must be a folder of grey images, got images in colours" in capsys.readouterr().err
    assert cli.main(["train", "few-shot", "--side", "15"]) == 2
    assert "side must be from 16 to 1024" in capsys.readouterr().err
    assert cli.main(["train", "few-shot", "--grey"]) == 2
    assert "grey must be left out without DATA" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["srwm", "lstm", "snail"])
@pytest.mark.parametrize("column", ["omniglot-1", "omniglot-delayed"])
def test_probabilities_equal_those_of_the_whole_sequence(trained, image_folder, model, column):
    network, task = library.load(trained / RUN.format(model, column))
    adaptation = adapt(network, task, image_folder)
    assert adaptation.classes == ("a <b>", "boat", "cup")
    assert [label for _, label in adaptation.examples] == [0, 1, 2, 0, 1, 2]
    assert adaptation.certainties.shape == (7, 2, 3)
    assert (adaptation.certainties.sum(-1) - 1).abs().max() < 1e-5
    for t in range(7):
        labels = [label for _, label in adaptation.examples[:t]]
        known_labels = [*labels, task.no_label] if task.labels == "synchronous" else [task.no_label, *labels]
        for n, image in enumerate(adaptation.images):
            images = torch.stack(
                [torch.from_numpy(s.pixels) for s in (*(e for e, _ in adaptation.examples[:t]), image)]
            )
            with torch.no_grad():
                outputs, _ = network.classify(images[None], torch.tensor([known_labels]))
            expected = outputs[0, -1, :3].softmax(-1)
            assert (adaptation.certainties[t, n] - expected).abs().max() < tolerance(torch.float32).forward


def test_model_of_two_data_sets_normalises_by_kind_of_image(image_folder):
    """Grey images have the normalisation of characters, others that of photographs."""
    task, calls = SequentialAdaptation(side=28), []

    class Recorder:
        def classify(self, images, labels, state, sources):
            calls.append((images.squeeze(1), sources.squeeze(1)))
            return torch.zeros(*labels.shape, task.ways), None

    adapt(Recorder(), task, image_folder)
    assert {len(images) for images, _ in calls} == {1, 2}
    for images, sources in calls:
        grey = (images == images[:, :1]).flatten(1).all(1)
        assert torch.equal(sources, (~grey).long())
    assert {int(source) for _, sources in calls for source in sources} == {0, 1}


def test_page_of_classify_is_self_contained(trained, image_folder, tmp_path, capsys):
    page = tmp_path / "page.html"
    run = trained / RUN.format("srwm", "omniglot-1")
    assert cli.main(["classify", str(run), str(image_folder), "--output", str(page)]) == 0
    output = capsys.readouterr().out
    assert re.search(r"^x\.png: (a <b>|boat|cup), \d+ %$", output, re.MULTILINE)
    text = page.read_text(encoding="utf-8")
    assert text.count("<img ") == 8
    assert text.count("<polyline ") == 2 * 3
    assert "a &lt;b&gt;" in text
    assert "a <b>" not in text
    assert not re.search(r'(?:src|href)="(?!data:)', text)
    for name in ("x.png", "y.jpg"):
        assert f"<div>{name}</div>" in text


def test_images_on_the_page_equal_the_inputs_of_the_model():
    for channels in (1, 3):
        image = np.random.default_rng(1).integers(0, 256, (channels, 7, 5), dtype=np.uint8)
        assert np.array_equal(read_channels(png(image), "x", channels), image)


def damaged(folder, fault):
    if fault == "corrupt":
        (folder / "boat" / "0.png").write_bytes((folder / "boat" / "0.png").read_bytes()[:60])
        return r"boat/0.png must be an image, got 60 bytes"
    if fault == "too few":
        (folder / "cup" / "1.png").unlink()
        return r"class 'cup' must be a folder with as many examples as the others, 2, got 1"
    if fault == "nothing to name":
        for name in ("x.png", "y.jpg"):
            (folder / name).unlink()
        return "folder must be a folder with images to classify, got none"
    keep = ("a <b>",) if fault == "one class" else ()
    for class_folder in [
        class_folder for class_folder in folder.iterdir() if class_folder.is_dir() and class_folder.name not in keep
    ]:
        for image in class_folder.iterdir():
            image.unlink()
        class_folder.rmdir()
    return rf"folder must be a folder with 2 to 5 folders of examples, got {len(keep)}"


@pytest.mark.parametrize("fault", ["corrupt", "too few", "nothing to name", "one class", "no class"])
def test_invalid_folder_gives_an_error_of_one_line(trained, image_folder, fault, capsys):
    expected = damaged(image_folder, fault)
    assert cli.main(["classify", str(trained / RUN.format("srwm", "omniglot-1")), str(image_folder)]) == 2
    message = capsys.readouterr().err
    assert re.search(expected, message), message
    assert message.count("\n") == 1


def test_classify_rejects_other_models(image_folder):
    with pytest.raises(InputError, match="task must be a task of few-shot episodes, got NoneType"):
        adapt(torch.nn.Linear(1, 1), None, image_folder)
