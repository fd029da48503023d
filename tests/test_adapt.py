"""`fastweights classify`: a user's own classes, learnt while a trained model looks at them."""

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
def drawn(tmp_path):
    """Three classes of two pictures, and two pictures to name; of several formats, sizes and modes."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "mine"
    for name, mode in {"a <b>": "L", "boat": "RGB", "cup": "1"}.items():
        (folder / name).mkdir(parents=True)
        for n in range(2):
            pixels = rng.integers(0, 256, (30 + n, 40), dtype=np.uint8)
            Image.fromarray(pixels).convert(mode).save(folder / name / f"{n}.png")
    for name in ("x.png", "y.jpg"):
        Image.fromarray(rng.integers(0, 256, (50, 50, 3), dtype=np.uint8)).save(folder / name)
    (folder / "notes.txt").write_text("no picture")
    return folder


def test_who_learned_from_a_folder_of_one_s_own_names_pictures_of_another(drawn, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    for name, n in product(range(15), range(3)):
        (tmp_path / "many" / str(name)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(f"many/{name}/{n}.png")
    train = ["train", "few-shot", "--preset", "smoke", "many", "--ways", "3", "--shots", "2"]
    assert cli.main([*train, "--layer", "delta-rnn", "--run", "own"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"step +4  train loss .* validation loss .*, accuracy .* left", told)
    assert re.search(r"accuracy on test data: \S+ ± \S+ \(chance 0.3333\)", told)
    assert cli.main(["classify", "own", str(drawn), "--output", "own.html"]) == 0
    assert "x.png: " in capsys.readouterr().out
    assert cli.main([*train, "--grey", "--run", "other"]) == 2
    assert "folder must be a folder of grey images, got images in colours" in capsys.readouterr().err
    assert cli.main(["train", "few-shot", "--side", "15"]) == 2
    assert "side must be from 16 to 1024" in capsys.readouterr().err
    assert cli.main(["train", "few-shot", "--grey"]) == 2
    assert "grey must be left out without DATA" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["srwm", "lstm", "snail"])
@pytest.mark.parametrize("column", ["omniglot-1", "omniglot-delayed"])
def test_answers_are_those_of_the_whole_sequence(trained, drawn, model, column):
    network, task = library.load(trained / RUN.format(model, column))
    found = adapt(network, task, drawn)
    assert found.classes == ("a <b>", "boat", "cup")
    assert [label for _, label in found.examples] == [0, 1, 2, 0, 1, 2]
    assert found.certainties.shape == (7, 2, 3)
    assert (found.certainties.sum(-1) - 1).abs().max() < 1e-5
    for t in range(7):
        labels = [label for _, label in found.examples[:t]]
        told = [*labels, task.no_label] if task.labels == "synchronous" else [task.no_label, *labels]
        for n, picture in enumerate(found.pictures):
            images = torch.stack([torch.from_numpy(s.image) for s in (*(e for e, _ in found.examples[:t]), picture)])
            with torch.no_grad():
                outputs, _ = network.name(images[None], torch.tensor([told]))
            wanted = outputs[0, -1, :3].softmax(-1)
            assert (found.certainties[t, n] - wanted).abs().max() < tolerance(torch.float32).forward


def test_a_model_of_two_data_sets_takes_the_normalisation_of_a_picture_s_kind(drawn):
    """Grey ones that of characters, others that of photographs."""
    task, asked = SequentialAdaptation(side=28), []

    class Asked:
        def name(self, images, labels, state, sources):
            asked.append((images.squeeze(1), sources.squeeze(1)))
            return torch.zeros(*labels.shape, task.ways), None

    adapt(Asked(), task, drawn)
    assert {len(images) for images, _ in asked} == {1, 2}
    for images, sources in asked:
        grey = (images == images[:, :1]).flatten(1).all(1)
        assert torch.equal(sources, (~grey).long())
    assert {int(source) for _, sources in asked for source in sources} == {0, 1}


def test_command_writes_a_page_that_needs_no_other(trained, drawn, tmp_path, capsys):
    page = tmp_path / "page.html"
    run = trained / RUN.format("srwm", "omniglot-1")
    assert cli.main(["classify", str(run), str(drawn), "--output", str(page)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^x\.png: (a <b>|boat|cup), \d+ %$", said, re.MULTILINE)
    text = page.read_text(encoding="utf-8")
    assert text.count("<img ") == 8
    assert text.count("<polyline ") == 2 * 3
    assert "a &lt;b&gt;" in text
    assert "a <b>" not in text
    assert not re.search(r'(?:src|href)="(?!data:)', text)
    for name in ("x.png", "y.jpg"):
        assert f"<div>{name}</div>" in text


def test_pictures_on_the_page_are_those_that_the_model_sees():
    for channels in (1, 3):
        image = np.random.default_rng(1).integers(0, 256, (channels, 7, 5), dtype=np.uint8)
        assert np.array_equal(read_channels(png(image), "x", channels), image)


def spoilt(folder, fault):
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
    for home in [home for home in folder.iterdir() if home.is_dir() and home.name not in keep]:
        for picture in home.iterdir():
            picture.unlink()
        home.rmdir()
    return rf"folder must be a folder with 2 to 5 folders of examples, got {len(keep)}"


@pytest.mark.parametrize("fault", ["corrupt", "too few", "nothing to name", "one class", "no class"])
def test_bad_folders_are_told_in_one_line(trained, drawn, fault, capsys):
    wanted = spoilt(drawn, fault)
    assert cli.main(["classify", str(trained / RUN.format("srwm", "omniglot-1")), str(drawn)]) == 2
    said = capsys.readouterr().err
    assert re.search(wanted, said), said
    assert said.count("\n") == 1


def test_other_models_name_no_pictures(drawn):
    with pytest.raises(InputError, match="task must be one of few-shot episodes, got NoneType"):
        adapt(torch.nn.Linear(1, 1), None, drawn)
