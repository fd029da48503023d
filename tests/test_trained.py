"""Trained models in Python: text, hidden states and predictions from a run folder."""

import shutil

import pytest
import torch

import fastweights
import my_memories
from fastweights import InputError, cli
from fastweights.core.sealed_json import read_sealed, write_sealed
from fastweights.tasks import Task

SMALL = ["--preset", "smoke", "--steps", "2", "--evaluate-every", "2", "--sample", "5", "--characters", "6000"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of a language model, of one with a custom layer, and of an experiment."""
    folder = tmp_path_factory.mktemp("runs")
    own = f"{my_memories.__file__}:Wrapped"
    assert cli.main(["train", "char-lm", *SMALL, "--run", str(folder / "book")]) == 0
    assert cli.main(["train", "char-lm", *SMALL, "--layer", own, "--run", str(folder / "own")]) == 0
    reproduce = ["reproduce", "state-tracking/groups", "--preset", "smoke", "--models", "delta-net", "--runs-dir"]
    assert cli.main([*reproduce, str(folder / "papers")]) in (0, 1)
    return folder


def test_a_language_model_is_loaded_with_its_tokenizer(runs, capsys):
    model, text = fastweights.load(runs / "book")
    assert not model.training
    tokens = text.encode("Dorothy")[None]
    assert text.decode(tokens[0]) == "Dorothy"
    generated = text.decode(model.generate(tokens, 30, temperature=0.8, seed=3, top_p=0.9)[0])
    arguments = ["--prompt", "Dorothy", "--max-new-tokens", "30", "--seed", "3", "--top-p", "0.9"]
    capsys.readouterr()
    assert cli.main(["generate", str(runs / "book"), *arguments]) == 0
    assert capsys.readouterr().out == f"Dorothy{generated}\n"


def test_a_loaded_model_continues_from_states_and_has_hidden_states(runs):
    model, text = fastweights.load(str(runs / "book"))
    tokens = text.encode("Dorothy lived")[None]
    hidden, _ = model.hidden(tokens)
    assert hidden.shape[:2] == tokens.shape
    _, state = model(tokens[:, :7])
    continued = model.generate(tokens[:, 7:], 9, seed=1, state=state)
    assert torch.equal(continued, model.generate(tokens, 9, seed=1))


def test_loading_does_not_need_the_training_text(runs, tmp_path):
    shutil.copytree(runs / "book", tmp_path / "run")
    content = read_sealed(tmp_path / "run" / "config.json")
    content["config"]["flags"]["text"] = "/no/such/file"
    write_sealed(tmp_path / "run" / "config.json", content)
    assert (
        fastweights.load(tmp_path / "run").task.trained_tokenizer.facts()
        == fastweights.load(runs / "book").task.trained_tokenizer.facts()
    )


@pytest.mark.parametrize("layer", [my_memories.Wrapped, "my_memories:Wrapped"], ids=["object", "name"])
def test_a_custom_layer_is_loaded_with_its_code(runs, layer):
    model, text = fastweights.load(runs / "own", layer=layer)
    assert type(model.blocks[0].layer.layer) is my_memories.Wrapped
    assert model(text.encode("Dorothy")[None])[0].isfinite().all()


def test_a_custom_layer_must_be_named_by_the_user(runs):
    with pytest.raises(InputError, match=r"layer must be named by you, .* \(in Python, layer=\)"):
        fastweights.load(runs / "own")


def test_generation_stops_at_the_end_token(runs, capsys):
    assert cli.main(["generate", str(runs / "book"), "--prompt", "a", "--seed", "1", "--eos-token", "e"]) == 0
    generated = capsys.readouterr().out[1:-1]
    assert generated.endswith("e")
    assert generated.count("e") == 1


@pytest.mark.parametrize("options", [["--temperature", "0"], ["--top-k", "5", "--top-p", "0.9"], ["--eos-token", "e"]])
def test_several_prompts_are_continued_as_alone(runs, options, capsys):
    prompts, alone = ["a", "Dorothy lived", "The "], []
    for place, prompt in enumerate(prompts):
        seed = str(7 + place)
        assert cli.main(["generate", str(runs / "book"), "--prompt", prompt, "--seed", seed, *options]) == 0
        alone.append(capsys.readouterr().out)
    together = [part for prompt in prompts for part in ("--prompt", prompt)]
    assert cli.main(["generate", str(runs / "book"), *together, "--seed", "7", *options]) == 0
    assert capsys.readouterr().out == "\n".join(alone)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--prompt", ""),
        ("--eos-token", "ab"),
        ("--eos-token", "\0"),
        ("--top-k", "0"),
        ("--top-p", "1.5"),
        ("--seed", "-1"),
        ("--max-new-tokens", "-1"),
    ],
)
def test_invalid_generation_is_refused_in_one_line(runs, flag, value, capsys):
    assert cli.main(["generate", str(runs / "book"), "--prompt", "a", flag, value]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def run_of_an_experiment(runs):
    return next((runs / "papers").rglob("config.json")).parent


def test_a_model_of_an_experiment_is_loaded_with_its_task(runs):
    model, task = fastweights.load(run_of_an_experiment(runs))
    assert isinstance(task, Task)
    inputs, targets = next(task.test(4))
    with torch.no_grad():
        outputs = model(inputs, targets.shape[1])
    measured = task.metrics(outputs, targets)
    assert 0 <= measured[task.main_metric.name].value <= 1


def test_generate_refuses_a_run_of_an_experiment(runs, capsys):
    assert cli.main(["generate", str(run_of_an_experiment(runs)), "--prompt", "a"]) == 2
    assert "run must be a run of a language model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("part", "value"), [("experiment", "no/such"), ("model", "os"), ("column", 3), ("preset", None), ("seed", -1)]
)
def test_only_names_of_the_library_are_accepted_from_a_folder(runs, tmp_path, part, value):
    shutil.copytree(run_of_an_experiment(runs), tmp_path / "run")
    content = read_sealed(tmp_path / "run" / "config.json")
    content["config"][part] = value
    write_sealed(tmp_path / "run" / "config.json", content)
    with pytest.raises(InputError, match=f"{part} in .* must be"):
        fastweights.load(tmp_path / "run")


def test_settings_that_differ_from_the_experiment_are_refused(runs, tmp_path):
    shutil.copytree(run_of_an_experiment(runs), tmp_path / "run")
    content = read_sealed(tmp_path / "run" / "config.json")
    content["config"]["trial"]["model_options"]["layer"] = "os:system"
    write_sealed(tmp_path / "run" / "config.json", content)
    with pytest.raises(InputError, match="a run with the same settings"):
        fastweights.load(tmp_path / "run")
