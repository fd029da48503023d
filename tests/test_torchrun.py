"""Training with torchrun equals training in one process, and can be interrupted and resumed."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from fastweights import cli
from fastweights.core.tensor_file import read_tensor_file
from fastweights.training.progress import Interrupted
from fastweights.training.run_folder.run import Run
from fastweights.training.session import Session

SMALL = ["--preset", "smoke", "--sample", "0", "--characters", "9000", "--device", "cpu", "--dropout", "0"]
FILES = ("last.safetensors", "best.safetensors")
pytestmark = pytest.mark.slow
ALIKE = [*SMALL, "--optimizer", "adamw"]
"""The bfloat16 products of Muon make the order of a sum visible."""
LONG = [*SMALL[:-2], "--steps", "60", "--evaluate-every", "5"]


def start(*arguments):
    """Starts `torchrun --nproc-per-node 2 -m -- fastweights ...` in a new process group."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*command, "fastweights", *map(str, arguments)], text=True, start_new_session=True, **pipes)


def torchrun(*arguments):
    """Output of a command after its end."""
    process = start(*arguments)
    output, error = process.communicate(timeout=300)
    assert process.returncode == 0, output + error
    return output


def curve(run):
    return torch.tensor([line["validation"]["loss"] for line in Run(run).metrics()])


def wait_for(process, file):
    deadline = time.monotonic() + 200
    while not file.exists():
        assert time.monotonic() < deadline, process.communicate(timeout=9)
        time.sleep(0.02)


def same(one, other):
    return all((one / file).read_bytes() == (other / file).read_bytes() for file in FILES)


@pytest.fixture(scope="module", autouse=True)
def on_this_machine():
    """Processes communicate over the loopback interface."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Run of one process."""
    run = tmp_path_factory.mktemp("alone") / "run"
    assert cli.main(["train", "char-lm", *ALIKE, "--run", str(run)]) == 0
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Uninterrupted run of two processes, with different dropout masks per process."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert cli.main(["train", "char-lm", *LONG, "--devices", "2", "--run", str(run)]) == 0
    return run


def test_two_processes_equal_one_and_print_once(alone, tmp_path):
    output = torchrun("train", "char-lm", *ALIKE, "--run", tmp_path / "run")
    torch.testing.assert_close(curve(tmp_path / "run"), curve(alone), rtol=1e-4, atol=1e-5)
    assert output.count("Kneser-Ney, order 5") == output.count("step    10") == 1
    two, one = (read_tensor_file(run / "last.safetensors").tensors for run in (tmp_path / "run", alone))
    for name in one:
        if name.startswith("state."):
            torch.testing.assert_close(two[name], one[name], rtol=1e-2, atol=1e-3, msg="states of the whole batch")


def test_the_runs_of_an_experiment_use_all_processes(tmp_path):
    flags = ["--preset", "smoke", "--device", "cpu", "--models", "delta-net", "lstm"]
    torchrun("reproduce", "zoology/recall", *flags, "--runs-dir", tmp_path / "two")
    assert cli.main(["reproduce", "zoology/recall", *flags, "--runs-dir", str(tmp_path / "one")]) == 0
    one, two = (sorted((tmp_path / name).rglob("config.json")) for name in ("one", "two"))
    assert len(one) == len(two) >= 2
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(curve(b.parent), curve(a.parent), rtol=1e-4, atol=1e-5)


def test_processes_stop_together_and_resume_bit_identically(whole, tmp_path):
    run = tmp_path / "stopped"
    process = start("train", "char-lm", *LONG, "--run", run)
    wait_for(process, run / "last.safetensors")
    os.kill(process.pid, signal.SIGTERM)
    output, error = process.communicate(timeout=120)
    assert process.returncode != 0, output + error
    assert f"fastweights train char-lm --run {run} --resume" in error
    assert 0 < len(Run(run).metrics()) < 12
    torchrun("train", "char-lm", "--run", run, "--resume")
    assert same(run, whole)


def test_a_run_resumes_with_another_number_of_processes(alone, tmp_path, monkeypatch):
    """Only random numbers depend on the number of processes."""
    run, end_step = str(tmp_path / "run"), Session.end_step

    def stop(session, *arguments):
        end_step(session, *arguments)
        if session.progress.step == 10:
            raise Interrupted("Stopped.")

    with monkeypatch.context() as patch:
        patch.setattr(Session, "end_step", stop)
        assert cli.main(["train", "char-lm", *ALIKE, "--run", run]) == 130
    assert cli.main(["train", "char-lm", "--run", run, "--resume", "--devices", "2"]) == 0
    torch.testing.assert_close(curve(tmp_path / "run"), curve(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("launcher", "which"), [("torchrun", 0), ("torchrun", -1), ("devices", -1)])
def test_a_killed_process_stops_the_others_and_the_run_resumes(launcher, which, whole, tmp_path):
    run = tmp_path / "run"
    process = start("train", "char-lm", *LONG, "--run", run) if launcher == "torchrun" else spawn(*LONG, "--run", run)
    wait_for(process, run / "last.safetensors")
    os.kill(trainers(process)[which], signal.SIGKILL)
    output, error = process.communicate(timeout=120)
    assert process.returncode == 1, output + error
    lines = [line for line in error.splitlines() if line.startswith("fastweights: ")]
    assert len(lines) == 1, error
    assert "A process of the training died" in lines[0]
    if launcher == "devices":
        assert len(error.splitlines()) == 1, error
        assert cli.main(["train", "char-lm", "--run", str(run), "--resume"]) == 0
        assert same(run, whole)


def spawn(*flags):
    """Starts the command with `--devices 2`."""
    command = [sys.executable, "-m", "fastweights.cli", "train", "char-lm", *map(str, flags), "--devices", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, start_new_session=True, **pipes)


def trainers(process):
    """IDs of the training processes in order, without the resource tracker."""
    columns = ["ps", "-e", "-ww", "-o", "pid=,ppid=,args="]
    table = subprocess.run(columns, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in table.splitlines()]
    mine = [int(pid) for pid, parent, args in rows if int(parent) == process.pid and "resource_tracker" not in args]
    assert len(mine) == 2, table
    return sorted(mine)
