"""Training with FSDP equals training in one process, and its checkpoints can be loaded in one process."""

import sys

import pytest
import torch

import fastweights
from fastweights import cli
from fastweights.core.tensor_file import read_tensor_file
from fastweights.models import LanguageModel
from fastweights.testing.tolerance import error, tolerance
from fastweights.training.distributed.ranks import gather, share
from fastweights.training.loops.language_modelling import make_optimiser, update
from fastweights.training.progress import Interrupted
from fastweights.training.run_folder.run import Run
from fastweights.training.session import Session
from fastweights.training.settings.language_modelling import LanguageModelling

SMALL = ["--preset", "smoke", "--sample", "0", "--characters", "9000", "--device", "cpu", "--dropout", "0"]
SMALL += ["--optimizer", "adamw"]  # the bfloat16 products of Muon make the order of a sum visible
SHARDED = ["--devices", "2", "--fsdp"]


@pytest.fixture(autouse=True)
def on_this_machine(monkeypatch):
    """Processes communicate over the loopback interface."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def curve(run):
    return torch.tensor([line["validation"]["loss"] for line in Run(run).metrics()])


def stop_after_ten(session, *arguments, end_step=Session.end_step):
    end_step(session, *arguments)
    if session.progress.step == 10:
        raise Interrupted("Stopped.")


@pytest.mark.slow
def test_fsdp_equals_one_process_and_resumes_its_checkpoints(tmp_path, monkeypatch):
    """Includes gradient accumulation and gradient checkpointing."""
    one, sharded, mixed = (tmp_path / name for name in ("one", "fsdp", "mixed"))
    assert cli.main(["train", "char-lm", *SMALL, "--run", str(one)]) == 0
    less = ["--gradient-accumulation-steps", "2", "--gradient-checkpointing"]
    assert cli.main(["train", "char-lm", *SMALL, *SHARDED, *less, "--run", str(sharded)]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Session, "end_step", stop_after_ten)
        assert cli.main(["train", "char-lm", *SMALL, "--run", str(mixed)]) == 130
    assert cli.main(["train", "char-lm", "--run", str(mixed), "--resume", *SHARDED]) == 0
    want = read_tensor_file(one / "last.safetensors").tensors
    for run in (sharded, mixed):
        torch.testing.assert_close(curve(run), curve(one), rtol=1e-4, atol=1e-5)
        got = read_tensor_file(run / "last.safetensors").tensors
        assert {name: t.shape for name, t in got.items() if "random" not in name} == {
            name: t.shape for name, t in want.items() if "random" not in name
        }
        assert cli.main(["train", "char-lm", "--run", str(run), "--resume", "--devices", "1", "--no-fsdp"]) == 0
    model, text = fastweights.load(sharded)
    assert model.generate(text.encode("The")[None], 5, seed=1).shape == (1, 5)


def steps_of_muon(fabric, path):
    """The weights of a model in float64 after two training steps."""
    torch.manual_seed(1)
    model = LanguageModel(10, "delta-net", d_model=8, num_layers=2, num_heads=2).double()
    model, optimiser = fabric.setup(model, make_optimiser(model, muon_settings()))
    tokens = torch.randint(10, (4, 9))
    for _ in range(2):
        update(fabric, model, optimiser, (tokens[:, :-1], tokens[:, 1:]), None, 1.0)
    weights = gather(fabric, {f"model.{name}": part for name, part in model.state_dict().items()})
    if fabric.is_global_zero:
        torch.save(weights, path)


def muon_settings(**hardware):
    numbers = {"steps": 2, "batch_size": 4, "window": 8, "evaluate_every": 1, "learning_rate": 0.1, "weight_decay": 0.5}
    return LanguageModelling(**numbers, optimizer="muon", device="cpu", **hardware)


@pytest.mark.slow
def test_muon_steps_whole_matrices(tmp_path):
    """In float64, where its products do not round to bfloat16."""
    for name, hardware in {"one": {}, "two": {"devices": 2, "fsdp": True}}.items():
        share(muon_settings(**hardware), steps_of_muon, tmp_path / name)
    one, two = (torch.load(tmp_path / name, weights_only=True) for name in ("one", "two"))
    for name, weight in one.items():
        assert error(two[name], weight) < tolerance(weight.dtype).gradient, name


def test_fsdp_is_refused_for_translators(capsys):
    assert cli.main(["train", "multi30k", *SHARDED, "--device", "cpu"]) == 2
    assert "fsdp must be false for translators" in capsys.readouterr().err
