"""Training with FSDP equals training in one process, and its checkpoints can be loaded in one process."""

import sys

import pytest
import torch

import fastweights
from fastweights import cli
from fastweights.core.tensor_file import read_tensor_file
from fastweights.training.progress import Interrupted
from fastweights.training.run_folder.run import Run
from fastweights.training.session import Session

SMALL = ["--preset", "smoke", "--sample", "0", "--characters", "9000", "--device", "cpu", "--dropout", "0"]
SHARDED = ["--devices", "2", "--fsdp"]


@pytest.fixture(autouse=True)
def on_this_machine(monkeypatch):
    """Processes communicate over the loopback interface."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def curve(run):
    return torch.tensor([line["validation"]["loss"] for line in Run(run).metrics()])


def stop_after_ten(session, *arguments, rest=Session.rest):
    rest(session, *arguments)
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
        patch.setattr(Session, "rest", stop_after_ten)
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


def test_fsdp_is_refused_for_translators(capsys):
    assert cli.main(["train", "multi30k", *SHARDED, "--device", "cpu"]) == 2
    assert "fsdp must be false for translators" in capsys.readouterr().err
