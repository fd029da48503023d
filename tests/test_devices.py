"""Several processes that train one model compute the results of one process, stop together and resume."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from fastweights import cli
from fastweights.experiments.plan import make_plan
from fastweights.models import RecurrentModel
from fastweights.tasks import IGNORE, AssociativeRecall, Batch
from fastweights.training.distributed.ranks import share
from fastweights.training.loops.supervised import update
from fastweights.training.run_folder.run import Run
from fastweights.training.settings._training import Hardware
from fastweights.training.settings.supervised import Supervised

SMALL = ["--preset", "smoke", "--sample", "0", "--characters", "9000", "--device", "cpu"]
TWO = [*SMALL, "--devices", "2", "--steps", "60", "--evaluate-every", "5"]
GROUPS = "state-tracking/groups"


@pytest.fixture(autouse=True)
def local_network(monkeypatch):
    """Processes communicate on this machine."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def curve(run):
    return torch.tensor([line["validation"]["loss"] for line in Run(run).metrics()])


@pytest.mark.slow
def test_two_processes_learn_the_same_from_streams(tmp_path):
    """With AdamW: the bfloat16 products of Muon make the order of a sum visible."""
    for devices in ("1", "2"):
        alike = ["--dropout", "0", "--optimizer", "adamw"]
        flags = [*SMALL, *alike, "--devices", devices, "--run", str(tmp_path / devices)]
        assert cli.main(["train", "char-lm", *flags]) == 0
    torch.testing.assert_close(curve(tmp_path / "2"), curve(tmp_path / "1"), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_two_processes_learn_the_same_from_labelled_sequences(tmp_path):
    for devices in ("1", "2"):
        only = ["--models", "lstm", "--device", "cpu", "--devices", devices]
        command = ["reproduce", "zoology/recall", "--preset", "smoke", *only, "--runs-dir", str(tmp_path / devices)]
        assert cli.main(command) == 0
    one, two = (next((tmp_path / devices).rglob("config.json")).parent for devices in ("1", "2"))
    torch.testing.assert_close(curve(two), curve(one), rtol=1e-4, atol=1e-5)


def one_update(fabric, path):
    """The weights of a linear model after a batch of sequences with one to eight answers each."""
    torch.manual_seed(1)
    task = AssociativeRecall(vocab_size=16, length=32, pairs=4, evaluation_size=1)
    inputs, targets = next(task.train_batches(8, seed=0))
    targets = torch.where(torch.arange(32) < 4 * torch.arange(1, 9)[:, None], targets.roll(-2, 1), IGNORE)
    model = RecurrentModel("tokens", task.input_size, task.output_size, "lstm", 8)
    model, optimiser = fabric.setup(model, torch.optim.SGD(model.parameters(), 1.0))
    update(fabric, model, optimiser, task, Batch(inputs, targets), max_grad_norm=0.0)
    if fabric.is_global_zero:
        torch.save(model.state_dict(), path)


@pytest.mark.slow
def test_answers_of_a_batch_have_equal_weights(tmp_path):
    """For every distribution of answers over processes."""
    for devices in (1, 2):
        settings = Supervised(steps=1, batch_size=8, learning_rate=1.0, evaluate_every=1, device="cpu", devices=devices)
        share(settings, one_update, tmp_path / str(devices))
    one, two = (torch.load(tmp_path / devices, weights_only=True) for devices in ("1", "2"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-4, atol=1e-6)


def start(*arguments):
    command = [sys.executable, "-m", "fastweights.cli", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, start_new_session=True, **pipes)


@pytest.mark.slow
def test_processes_stop_together_and_resume_bit_identically(tmp_path):
    """With dropout, which has a separate generator per process."""
    run, whole = tmp_path / "stopped", tmp_path / "whole"
    process = start("train", "char-lm", *TWO, "--run", run)
    deadline = time.monotonic() + 200
    while not (run / "last.safetensors").exists():
        assert time.monotonic() < deadline, process.communicate(timeout=9)
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGTERM)
    output, error = process.communicate(timeout=120)
    assert process.returncode == 130, output + error
    assert f"fastweights train char-lm --run {run} --resume" in error
    assert len(Run(run).metrics()) < 12
    assert cli.main(["train", "char-lm", "--run", str(run), "--resume"]) == 0
    assert cli.main(["train", "char-lm", *TWO, "--run", str(whole)]) == 0
    for file in ("last.safetensors", "best.safetensors"):
        assert (run / file).read_bytes() == (whole / file).read_bytes()


def error_of(capsys, *arguments):
    assert cli.main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1, error
    return error


def test_batch_size_is_a_multiple_of_the_processes(tmp_path, capsys):
    flags = ["--devices", "3", "--run", str(tmp_path / "run")]
    assert "batch_size must be a multiple of 3" in error_of(capsys, "train", "char-lm", *SMALL, *flags)
    experiment = ["reproduce", GROUPS, "--preset", "smoke", "--runs-dir", str(tmp_path)]
    assert "batch_size must be a multiple of 7" in error_of(capsys, *experiment, "--devices", "7")


def test_error_names_an_unavailable_device(tmp_path, capsys):
    device = "mps" if torch.cuda.is_available() else "cuda"
    error = error_of(capsys, "reproduce", GROUPS, "--device", device, "--runs-dir", str(tmp_path))
    assert "device must be available" in error
    assert not list(tmp_path.rglob("config.json"))


def test_device_is_not_part_of_the_identity_of_a_run(tmp_path):
    flags = ["reproduce", GROUPS, "--preset", "smoke", "--models", "lstm", "--runs-dir", str(tmp_path)]
    assert cli.main([*flags, "--device", "cpu"]) == 0
    (result,) = tmp_path.rglob("result.json")
    result.unlink()
    assert cli.main(flags) == 0
    assert result.exists()


def test_runs_of_a_plan_are_trained_on_its_devices(tmp_path):
    plan = make_plan(GROUPS, "smoke", tmp_path, where=Hardware("cpu", 2))
    trainings = [job.trial(plan.experiment, plan.where).training for job in plan.jobs]
    assert {(training.device, training.devices) for training in trainings} == {("cpu", 2)}
