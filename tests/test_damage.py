"""Damage to a file of a run folder gives an error of one line, or changes nothing."""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from fastweights import InputError
from fastweights.core.files import read_file, read_json, write_atomically
from fastweights.core.metric import BITS
from fastweights.core.tensor_file import TensorFile, read_tensor_file, write_tensor_file
from fastweights.training.run_folder.checkpoints import last_checkpoint, resume
from fastweights.training.run_folder.progress_state import Progress
from fastweights.training.run_folder.result import Result
from fastweights.training.run_folder.run import Run
from fastweights.training.run_folder.training_state import restore, unpack

LINES = 4
WORDS = [f"w{n}" for n in range(1000)]
FILES = ("config.json", "task.json", "metrics.jsonl", "last.safetensors", "best.safetensors", "result.json")


def begin(folder):
    """A run with settings, checkpoints and metrics, but without a result."""
    run = Run(folder)
    run.begin("char-lm", {"text": None, "rate": 0.5}, {"vocab_size": "ab\n\xe9", "words": WORDS}, BITS)
    tensors = {"model.a": torch.arange(6.0).view(2, 3), "model.b": torch.tensor(7), "random.cpu": torch.zeros(3).byte()}
    for step in range(LINES):
        run.log(step=step, bits=2.0 / (step + 1), validation=float("nan"))
    write_tensor_file(run.path / "last.safetensors", TensorFile(tensors, {"step": 9, "evaluations": LINES}))
    write_tensor_file(run.path / "best.safetensors", TensorFile(tensors, {"step": 3}))
    return run


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory):
    run = begin(tmp_path_factory.mktemp("finished"))
    measured = {
        "validation": {"loss": 0.5},
        "test": {"loss": 0.25},
        "curves": {"a": [(0, 0.5)]},
        "details": {"b": {"c": 1.0}},
    }
    run.write_result(Result(step=3, steps=9, stopped="steps", seconds=1.5, parameters=7, **measured))
    return run


@pytest.fixture
def run(undamaged, tmp_path):
    """A finished run in its own folder, for a test to damage."""
    return Run(Path(shutil.copytree(undamaged.path, tmp_path / "run")))


def contents(checkpoint):
    return {name: (t.dtype, t.tolist()) for name, t in checkpoint.tensors.items()}, checkpoint.facts


def read_all(run):
    """All information that a run folder determines."""
    last, best = last_checkpoint(run), read_tensor_file(run.path / "best.safetensors")
    metrics = repr(run.metrics_at(last.facts["evaluations"])) if last else []
    return repr((run.config(), run.task(), run.result(), metrics, last and contents(last), contents(best)))


def gives_error_or_changes_nothing(run, name, content, whole):
    """Whether the damage gave an error; otherwise it changed nothing."""
    (run.path / name).write_bytes(content)
    try:
        assert read_all(run) == whole
    except InputError as error:
        message = str(error)
        assert name in message, message
        assert len(message.splitlines()) == 1
        return True
    return False


def flips(content, sampled):
    for position in sampled:
        yield content[:position] + bytes([content[position] ^ 1 << position % 8]) + content[position + 1 :]


def damages(name, content):
    """Changes of one bit, truncations, lost, duplicated and exchanged lines, no content and other content."""
    positions = random.Random(0).sample(range(len(content)), min(len(content), 150))
    yield from flips(content, [*positions, len(content) - 1])
    yield from (content[:place] for place in positions[:50])
    yield from (content[:place] + b"\0" * (len(content) - place) for place in positions[:20])
    lines = content.splitlines(keepends=True)
    for left, right in itertools.combinations_with_replacement(range(min(len(lines), 8)), 2):
        exchanged = list(lines)
        exchanged[left], exchanged[right] = lines[right], lines[left]
        yield b"".join(exchanged)
        yield b"".join(lines[:left] + lines[right + 1 :])
    yield from (b"", b"\n", b"{}", b"[]", b"\0", content + content, content + b"\n{}", content + b"{}\n")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "unfinished"])
def test_damage_is_harmless_or_gives_an_error(run, name, finished):
    if not finished:
        if name == "result.json":
            return
        (run.path / "result.json").unlink()
    content, whole = (run.path / name).read_bytes(), read_all(run)
    detected = [gives_error_or_changes_nothing(run, name, damaged, whole) for damaged in damages(name, content)]
    assert sum(detected) > 0.5 * len(detected)


@pytest.mark.parametrize("name", FILES)
def test_error_names_a_lost_file(run, name):
    (run.path / name).unlink()
    if name == "result.json":
        assert run.result() is None
        return
    with pytest.raises(InputError, match=name):
        read_all(run)


def test_crash_between_metrics_and_checkpoint_is_no_damage(tmp_path):
    run = begin(tmp_path)
    whole = (run.path / "metrics.jsonl").read_bytes()
    run.log(step=10, bits=0.1)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "bi')
    resume(run)
    assert last_checkpoint(run).facts["step"] == 9
    assert (run.path / "metrics.jsonl").read_bytes() == whole


def test_crash_before_the_first_checkpoint_is_no_damage(tmp_path):
    run = Run(tmp_path)
    resume(run)
    assert last_checkpoint(run) is None
    run.log(step=1, bits=0.1)
    resume(run)
    assert last_checkpoint(run) is None
    assert run.metrics() == []


def test_result_is_valid_for_its_metrics_only(run):
    run.log(step=10, bits=0.1)
    assert run.result() is None


def test_pipes_in_a_run_folder_do_not_block(run):
    """An untrusted folder may contain anything."""
    for name in FILES:
        content = (run.path / name).read_bytes()
        (run.path / name).unlink()
        os.mkfifo(run.path / name)
        with pytest.raises(InputError, match=f"a regular file, got .*{name}"):
            read_all(run)
        (run.path / name).unlink()
        (run.path / name).write_bytes(content)
    os.mkfifo(run.path / "progress.json")
    assert run.progress() == (0, 0.0)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"step": "x"}', b'{"step": 1e999, "seconds": 0}', b"[" * 99])
def test_unreadable_progress_is_zero(run, content):
    (run.path / "progress.json").write_bytes(content)
    assert run.progress() == (0, 0.0)


# Checkpoints


def test_equal_tensors_give_equal_files(tmp_path):
    """For every order of the tensors. (Of two entries that are not tensors, safetensors draws the order at random.)"""
    tensors = {name: torch.full((3,), float(len(name))) for name in ("a", "bb", "ccc", "dddd")}
    contents = set()
    for order in itertools.permutations(tensors):
        write_tensor_file(tmp_path / "x", TensorFile({name: tensors[name] for name in order}, {"step": 1, "rate": 0.5}))
        contents.add((tmp_path / "x").read_bytes())
    assert len(contents) == 1


PROGRESS = {**vars(Progress()), "step": 3}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"step": 3},
        {**PROGRESS, "more": 1},
        {**PROGRESS, "step": "3"},
        {**PROGRESS, "step": -1},
        {**PROGRESS, "step": 3.5},
    ],
)
def test_unexpected_facts_are_rejected(facts):
    assert restore(Progress, PROGRESS) == Progress(step=3)
    with pytest.raises(InputError, match="checkpoint must be a checkpoint with facts step, "):
        restore(Progress, facts)


@pytest.mark.parametrize("name", ["optimiser.x.y", "optimiser.0", "optimiser.0.exp_avg", "random.cpu", "state.0"])
def test_unexpected_tensors_are_rejected(name):
    model = torch.nn.Linear(2, 2)
    optimiser = torch.optim.Adam(model.parameters())
    tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
    tensors |= {"random.cpu": torch.get_rng_state(), "state.0": torch.zeros(1)}
    unpack(tensors, model, optimiser, (torch.zeros(1),))
    with pytest.raises(InputError, match="checkpoint must be"):
        unpack({**tensors, name: torch.zeros(3, 5)}, model, optimiser, (torch.zeros(1),))


# Writing


def test_next_writer_removes_files_of_a_killed_one(tmp_path):
    program = """
import os, sys
from pathlib import Path
from fastweights.core import files
os.fsync = lambda _: (print("written", flush=True), sys.stdin.read())
files.write_atomically(Path(sys.argv[1]), b"half")
"""
    path = tmp_path / "a[b].json"
    others = [tmp_path / name for name in (".a[b].json.tmp", ".a[b].json.12.tmp", ".ab.json.0123abcd.tmp", "x.tmp")]
    for other in others:
        other.write_text("not ours")
    command = [sys.executable, "-c", program, path]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    (temporary_file,) = {*tmp_path.iterdir()} - {*others}
    write_atomically(path, b"other")
    assert temporary_file.exists(), "the writer is alive"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_concurrent_writers_leave_one_complete_file(tmp_path):
    path = tmp_path / "file"
    contents = [bytes([number]) * 10_000 for number in range(4)]
    failures = []

    def write(content):
        try:
            for _ in range(20):
                write_atomically(path, content)
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert not path.exists() or path.read_bytes() in contents
        time.sleep(0.001)
    assert not failures
    assert list(tmp_path.iterdir()) == [path]


# Reading


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/", "/no/such/file"])
def test_unreadable_file_is_rejected(path):
    with pytest.raises(InputError, match=f"text must be a .*file, got {path}"):
        read_file(Path(path), "text")


def test_huge_file_is_rejected(tmp_path):
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(
        InputError, match=r"text must be a file of at most 1,000 bytes, got .*sparse with 1,099,511,627,776"
    ):
        read_file(sparse, "text", limit=1000)


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 30 + b"1" + b"}" * 30, b"\xff", b"9" * 5000, b"{"])
def test_untrusted_json_is_bounded(content):
    with pytest.raises(InputError, match="config must be JSON"):
        read_json(content, "config", "that")
