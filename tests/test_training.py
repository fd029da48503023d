"""Training runs: interruptions, damage, resuming, and the memory allocator."""

import contextlib
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from fastweights import InputError, cli
from fastweights.core.files import write_atomically
from fastweights.core.sealed_json import read_sealed, write_sealed
from fastweights.core.tensor_file import TensorFile, read_tensor_file, write_tensor_file
from fastweights.layers import layer_names
from fastweights.tasks.text import OZ
from fastweights.training.run_folder.run import LOCK, Run
from tiers import base_of, in_tiers

SMALL = ["--preset", "smoke", "--sample", "20"]
SLOW = [*SMALL, "--steps", "60", "--evaluate-every", "5"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """File with a tenth of the book."""
    path = tmp_path_factory.mktemp("text") / "oz.txt"
    path.write_text(OZ.read_text(encoding="utf-8")[:20_000], encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def finished(text, tmp_path_factory):
    """Uninterrupted run of 60 steps."""
    run = tmp_path_factory.mktemp("runs") / "finished"
    assert cli.main(["train", "char-lm", *SLOW, "--text", text, "--run", str(run)]) == 0
    return run


def start(*arguments):
    """Starts the command in a new process group."""
    command = [sys.executable, "-m", "fastweights.cli", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes)


def wait_for_lines(path, count):
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_text().count("\n") < count:
        assert time.monotonic() < deadline, f"{path} never got {count} lines"
        time.sleep(0.01)


def same_weights(one, other):
    files = ("last.safetensors", "best.safetensors")
    return all((one / file).read_bytes() == (other / file).read_bytes() for file in files)


def metrics(run):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in Run(run).metrics()]


def test_a_run_folder_has_settings_metrics_figure_and_result(finished):
    config = json.loads((finished / "config.json").read_text())
    assert config["config"]["flags"]["steps"] == config["config"]["trial"]["training"]["steps"] == 60
    assert config["environment"]["torch"] == torch.__version__
    assert [line["step"] for line in metrics(finished)] == list(range(5, 61, 5))
    assert (finished / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((finished / "result.json").read_text())
    assert len(result["baselines"]) == 5
    assert result["test"]["bits"] > 0


def test_a_report_includes_a_run_of_train(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    assert cli.main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "not counted" not in page
    assert re.search(r"\| lstm,gated-delta, preset smoke, steps 60, text .*/oz.txt \| \d\.\d+ \(1\) † \|", page)
    assert "| Kneser-Ney, order 5 |" in page
    assert "Cut off while improving" in page


def test_training_reduces_the_validation_loss(finished):
    bits = [line["validation"]["bits"] for line in metrics(finished)]
    assert bits[-1] < bits[0] - 0.5


@pytest.mark.slow
def test_resume_is_bit_identical_after_a_kill(finished, text, tmp_path):
    run = tmp_path / "killed"
    process = start("train", "char-lm", *SLOW, "--text", text, "--run", run)
    for lines in (2, 6):
        wait_for_lines(run / "metrics.jsonl", lines)
        time.sleep(0.05 * lines)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        process = start("train", "char-lm", "--run", run, "--resume")
    output, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert "bits per character" in output
    assert same_weights(run, finished)
    assert metrics(run) == metrics(finished)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_prints_its_resume_command(finished, text, tmp_path, number, capsys):
    run = tmp_path / "stopped"
    process = start("train", "char-lm", *SLOW, "--text", text, "--run", run)
    wait_for_lines(run / "metrics.jsonl", 1)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"fastweights train char-lm --run {run} --resume" in error
    assert len(error.splitlines()) == 1
    assert cli.main(["train", "char-lm", "--run", str(run), "--resume"]) == 0
    assert same_weights(run, finished)


def test_resuming_a_finished_run_prints_its_result(finished, capsys):
    before = (finished / "last.safetensors").read_bytes()
    assert cli.main(["train", "char-lm", "--run", str(finished), "--resume"]) == 0
    assert "Kneser-Ney, order 5" in capsys.readouterr().out
    assert (finished / "last.safetensors").read_bytes() == before


def test_evaluate_repeats_the_result(finished, capsys):
    before = json.loads((finished / "result.json").read_text())
    assert cli.main(["evaluate", str(finished)]) == 0
    assert json.loads((finished / "result.json").read_text()) == before


def test_generate_is_reproducible_with_its_seed(finished, capsys):
    texts = []
    for _ in range(2):
        assert (
            cli.main(["generate", str(finished), "--prompt", "Dorothy", "--max-new-tokens", "30", "--seed", "3"]) == 0
        )
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].startswith("Dorothy")
    assert len(texts[0]) == len("Dorothy") + 30 + 1


def test_the_end_token_applies_to_every_prompt(text, tmp_path, capsys):
    """In a model of words, the end token is a word, not its letters in another word."""
    run, small = str(tmp_path / "words"), [*SMALL, "--tokenizer", "words", "--steps", "2"]
    assert cli.main(["train", "char-lm", *small, "--text", text, "--run", run]) == 0
    capsys.readouterr()
    how = ["--max-new-tokens", "60", "--eos-token", "the", "--temperature", "1"]
    assert cli.main(["generate", run, "--prompt", "the", "--prompt", "and", *how, "--seed", "1"]) == 0
    together = capsys.readouterr().out.removesuffix("\n").split("\n\n")
    alone = []
    for n, prompt in enumerate(("the", "and")):
        assert cli.main(["generate", run, "--prompt", prompt, *how, "--seed", str(1 + n)]) == 0
        alone.append(capsys.readouterr().out.removesuffix("\n"))
    assert together == alone


def refused(arguments, capsys):
    """Asserts status 2 with one line of output, and returns the line."""
    assert cli.main(list(map(str, arguments))) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1, error
    return error


def test_existing_run_is_not_overwritten(finished, capsys):
    assert "--resume" in refused(["train", "char-lm", *SMALL, "--run", finished], capsys)


def test_resume_with_other_settings_is_refused(finished, capsys):
    assert "layer must be 'lstm,gated-delta'" in refused(
        ["train", "char-lm", "--run", finished, "--resume", "--layer", "lstm"], capsys
    )


def test_changed_text_is_refused(text, tmp_path, capsys):
    mine = tmp_path / "mine.txt"
    shutil.copy(text, mine)
    assert cli.main(["train", "char-lm", *SMALL, "--text", str(mine), "--run", str(tmp_path / "run")]) == 0
    mine.write_text("another text " * 2000)
    assert "text must be the data that" in refused(["evaluate", tmp_path / "run"], capsys)


def test_a_text_that_is_too_short_for_evaluation_leaves_no_run(tmp_path, capsys):
    short = tmp_path / "short.txt"
    short.write_text("a text of twenty ch.")
    flags = ["--batch-size", "1", "--window", "4", "--text", short, "--run", tmp_path / "run"]
    assert "must be at least 2 characters long, got 1" in refused(["train", "char-lm", *SMALL, *flags], capsys)
    assert not (tmp_path / "run").exists()


def test_a_run_without_an_evaluation_is_refused(finished, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    last = read_tensor_file(run / "last.safetensors")
    write_tensor_file(run / "last.safetensors", last._replace(facts={**last.facts, "evaluations": 0}))
    (run / "metrics.jsonl").unlink()
    (run / "result.json").unlink()
    assert "run must be a run with an evaluation" in refused(["evaluate", run], capsys)


def test_a_lock_is_released_only_after_its_folder_is_deleted(tmp_path, monkeypatch):
    """A run that has not begun deletes its folder while it still holds the lock."""
    run, release, others = Run(tmp_path / "run"), FileLock.release, []

    def let_go(lock, force=False):
        release(lock, force)
        monkeypatch.undo()
        others.append((run.path / LOCK).exists())

    monkeypatch.setattr(FileLock, "release", let_go)
    with run.lock():
        pass
    assert others == [False], "the lock file must be deleted before the lock is released"
    assert not run.path.exists()


def test_runs_of_the_same_second_have_different_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len({Run.unused("char-lm").path for _ in range(3)}) == 3


def test_second_process_in_a_folder_is_refused(finished, capsys):
    with Run(finished).lock():
        assert "no other process" in refused(["train", "char-lm", "--run", finished, "--resume"], capsys)


@pytest.mark.parametrize("damage", ["truncated", "empty", "other file", "flipped", "missing", "other model"])
def test_damaged_checkpoint_is_refused(finished, tmp_path, damage, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    best = run / "best.safetensors"
    content = best.read_bytes()
    match damage:
        case "missing":
            best.unlink()
        case "other model":
            write_tensor_file(best, TensorFile({"model.x": torch.zeros(1)}, {}))
        case _:
            flipped = content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]
            changed = {"truncated": content[:-1], "empty": b"", "other file": b"text" * 99, "flipped": flipped}
            best.write_bytes(changed[damage])
    assert "checkpoint must be" in refused(["generate", run, "--prompt", "a"], capsys)


def test_states_of_other_models_and_other_files_are_refused(finished, text, tmp_path, capsys):
    """A text, a checkpoint, a truncated state, a state of another model, and a missing file."""
    other, state = tmp_path / "lstm", tmp_path / "state.safetensors"
    flags = ["--layer", "lstm", "--steps", "1", "--evaluate-every", "1", "--text", text, "--run", str(other)]
    assert cli.main(["train", "char-lm", *SMALL, *flags]) == 0
    assert (
        cli.main(["generate", str(other), "--prompt", "The", "--max-new-tokens", "3", "--save-state", str(state)]) == 0
    )
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(state.read_bytes()[:-1])
    capsys.readouterr()
    for file in (Path(text), finished / "best.safetensors", cut, state, tmp_path / "missing"):
        error = refused(["generate", finished, "--prompt", "The", "--state", file], capsys)
        assert error.startswith("fastweights: state must be ")
        assert str(file) in error


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"config": {}, "task": {}}', '{"config": 1, "task": {}}'])
def test_damaged_config_is_refused(finished, tmp_path, content, capsys):
    (tmp_path / "config.json").write_text(content)
    refused(["evaluate", tmp_path], capsys)


def test_config_with_a_wrong_value_is_refused(finished, tmp_path, capsys):
    config = json.loads((finished / "config.json").read_text())
    config["config"]["flags"]["num_heads"] = "many"
    write_sealed(tmp_path / "config.json", {key: value for key, value in config.items() if key != "sha256"})
    assert "num_heads" in refused(["evaluate", tmp_path], capsys)


UNTRUSTED = [
    ("flags", "d_model", 10**9),
    ("flags", "d_model", 2**20),
    ("flags", "num_layers", 100_000),
    ("flags", "num_heads", 0),
]
UNTRUSTED += [("task", "tokens", value) for value in (None, 5, "", [], {"a": 1}, "a" * 10**6, "abcdefgh")]


@pytest.mark.parametrize(("part", "name", "value"), UNTRUSTED, ids=lambda value: str(value)[:20])
def test_an_untrusted_config_with_a_valid_seal_is_refused(finished, tmp_path, part, name, value, capsys):
    """Sizes beyond any memory, a missing vocabulary, and a vocabulary that differs from that of the weights."""
    shutil.copytree(finished, tmp_path / "run")
    content = read_sealed(tmp_path / "run" / "config.json")
    (content["config"]["flags"] if part == "flags" else content["task"])[name] = value
    write_sealed(tmp_path / "run" / "config.json", content)
    refused(["generate", tmp_path / "run", "--prompt", "a"], capsys)


def test_a_config_that_is_a_pipe_is_refused(tmp_path, capsys):
    os.mkfifo(tmp_path / "config.json")
    refused(["generate", tmp_path, "--prompt", "a"], capsys)


@given(st.data())
@settings(max_examples=60)
def test_a_fuzzed_checkpoint_is_read_unchanged_or_refused(tmp_path, data):
    path = tmp_path / "x.safetensors"
    tensors = {"a": torch.arange(12.0).view(3, 4), "b": torch.tensor(7), "c": torch.zeros(0, 2)}
    write_tensor_file(path, TensorFile(tensors, {"step": 3}))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    with contextlib.suppress(InputError):
        got = read_tensor_file(path)
        assert got.facts == {"step": 3}
        assert got.tensors.keys() == tensors.keys()
        assert all(torch.equal(got.tensors[name], tensor) for name, tensor in tensors.items())


def limit_file_size():
    """Limits files to 100 kB. The checkpoint with the moments of Adam is larger."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


@pytest.mark.slow
def test_a_run_can_resume_after_a_full_disk(text, tmp_path, fastweights):
    run = tmp_path / "run"
    result = fastweights("train", "char-lm", *SLOW, "--text", text, "--run", run, preexec_fn=limit_file_size)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "File too large" in result.stderr
    assert str(run) in result.stderr
    assert not list(run.glob("*.tmp")) + list(run.glob(".*.tmp"))
    resumed = fastweights("train", "char-lm", "--run", run, "--resume")
    assert resumed.returncode == 0, resumed.stderr


def test_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "no bytes")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_truncated_line_of_metrics_is_ignored(tmp_path):
    run = Run(tmp_path)
    run.log(step=1, bits=2.0)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "bi')
    assert run.metrics() == [{"step": 1, "bits": 2.0}]


def test_flags_override_the_yaml_file(text, tmp_path):
    (tmp_path / "mine.yaml").write_text("layer: lstm\nsteps: 7\n")
    run = tmp_path / "run"
    flags = ["--config", str(tmp_path / "mine.yaml"), "--steps=2", "--text", text, "--run", str(run)]
    assert cli.main(["train", "char-lm", *SMALL, *flags]) == 0
    config = Run.open(Path(run)).config()["config"]["flags"]
    assert (config["layer"], config["steps"]) == ("lstm", 2)


@pytest.mark.parametrize("layer", in_tiers({name: {base_of(name)} for name in layer_names()}))
def test_every_layer_trains(layer, text, tmp_path):
    run = tmp_path / "run"
    # The preset's 0.004 makes the IRNN diverge within 20 updates, since its state is unbounded along a stream.
    flags = ["--layer", layer, "--steps", "12", "--evaluate-every", "6", "--learning-rate", "0.001"]
    assert cli.main(["train", "char-lm", *SMALL, *flags, "--text", text, "--run", str(run)]) == 0
    bits = [line["validation"]["bits"] for line in metrics(run)]
    assert bits[1] < bits[0]


def test_training_with_mixed_precision(text, tmp_path):
    run = tmp_path / "run"
    flags = ["--precision", "bf16-mixed", "--device", "cpu", "--text", text, "--run", str(run)]
    assert cli.main(["train", "char-lm", *SMALL, *flags]) == 0
    assert all(line["validation"]["bits"] < 8 for line in metrics(run))


def test_patience_stops_training_without_improvement(tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text(OZ.read_text(encoding="utf-8")[:4000], encoding="utf-8")
    flags = ["--steps", "400", "--evaluate-every", "10", "--patience", "2", "--learning-rate", "0.02"]
    assert cli.main(["train", "char-lm", *SMALL, *flags, "--text", str(mine), "--run", str(tmp_path / "run")]) == 0
    bits = [line["validation"]["bits"] for line in metrics(tmp_path / "run")]
    assert len(bits) < 40
    assert bits.index(min(bits)) == len(bits) - 3


PROGRAM = """
import resource, sys, torch
from fastweights.training.malloc import use_arena_allocator

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 23)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

use_arena_allocator() if sys.argv[1] == "arena" else None
for _ in range(50):
    faults()
print(sum(faults() for _ in range(10)))
"""
PAGES = (4 << 23) // 4096
"""Pages of the tensor."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the malloc of glibc")
def test_the_arena_allocator_avoids_page_faults_of_large_tensors():
    arena, default = (
        int(subprocess.run([sys.executable, "-c", PROGRAM, allocator], capture_output=True, check=True).stdout)
        for allocator in ("arena", "default")
    )
    assert arena < PAGES / 10 < PAGES < default
