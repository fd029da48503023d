"""All files are written by one module, which replaces links without following them and never waits for a pipe."""

import ast
import json
import os
import threading
from pathlib import Path

import pytest
import torch

import fastweights
from fastweights import InputError, cli
from fastweights.core.files import appending, copy_atomically, make_own_folder, read_file, read_text, write_atomically
from fastweights.core.sealed_json import append_sealed, read_sealed_lines
from fastweights.core.tensor_file import TensorFile, write_tensor_file
from fastweights.training.run_folder.run import LOCK, PROGRESS, Run

ROOT = Path(fastweights.__file__).parent
DIRECT = {
    "write_text",
    "write_bytes",
    "savez",
    "tofile",
    "to_csv",
    "copyfile",
    "copy2",
    "copytree",
    "symlink_to",
    "touch",
}
"""Methods and functions that write a file given its path."""
PRIVATE = {
    "core/files.py": "the module that writes files",
    "compiler/targets/cpp/build.py": "a private temporary folder, whose files then replace those in the cache",
    "compiler/targets/cpp/scratch.py": "the marker of that temporary folder",
    "compiler/targets/cpp/toolchain.py": "the source of the probe, in that temporary folder",
}


def writes(path):
    """Calls in a source file that open a file for writing, or write one given its path."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        words = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        words += [k.value.value for k in node.keywords if k.arg == "mode" and isinstance(k.value, ast.Constant)]
        opened = name in ("open", "fdopen") and any(set(w) <= set("rwaxbt+") and set(w) & set("wax+") for w in words)
        if opened or name in DIRECT:
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def test_all_files_are_written_by_one_module():
    calls_of = {path.relative_to(ROOT).as_posix(): [*writes(path)] for path in ROOT.rglob("*.py")}
    assert not [call for path, calls in calls_of.items() if path not in PRIVATE for call in calls]
    assert all(calls_of[path] for path in PRIVATE), "a listed file that no longer writes"


def append(path):
    with appending(path, "file") as file:
        file.write(b"new")


def copy(path):
    source = path.with_name("source")
    source.write_bytes(b"new")
    copy_atomically(source, path)


WRITERS = {
    "write": lambda path: write_atomically(path, b"new"),
    "write without fsync": lambda path: write_atomically(path, b"new", durable=False),
    "append": append,
    "copy": copy,
    "metrics": lambda path: append_sealed(path, {"step": 1}),
    "checkpoint": lambda path: write_tensor_file(path, TensorFile({"a": torch.zeros(1)}, {})),
}


@pytest.mark.parametrize("target", ["precious.txt", "nowhere"])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_is_replaced_and_never_followed(tmp_path, writer, target):
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    path = tmp_path / "file"
    path.symlink_to(tmp_path / target)
    WRITERS[writer](path)
    assert precious.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    assert not path.is_symlink()
    assert path.read_bytes()


@pytest.mark.parametrize("writer", WRITERS)
def test_writers_do_not_wait_for_a_pipe(tmp_path, writer):
    """A pipe is replaced, or refused for appending."""
    path = tmp_path / "file"
    os.mkfifo(path)
    failures = []

    def write():
        try:
            WRITERS[writer](path)
        except InputError as error:
            failures.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert path.is_file() or "must be a regular file" in str(failures[0])


@pytest.mark.parametrize("read", [read_file, read_text])
def test_pipes_are_not_read(tmp_path, read):
    os.mkfifo(tmp_path / "file")
    with pytest.raises(InputError, match="text must be a regular file"):
        read(tmp_path / "file", "text")


def test_a_link_to_a_folder_is_replaced_by_a_folder(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "figures").symlink_to(tmp_path / "precious")
    assert make_own_folder(tmp_path / "figures").is_dir()
    assert not (tmp_path / "figures").is_symlink()
    assert make_own_folder(tmp_path / "a" / "b").is_dir()


def test_appended_content_comes_last(tmp_path):
    for _ in range(3):
        append(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"newnewnew"
    for step in range(3):
        append_sealed(tmp_path / "lines", {"step": step})
    assert [line["step"] for line in read_sealed_lines(tmp_path / "lines")] == [0, 1, 2]


def test_resuming_a_folder_of_links_changes_nothing_outside(tmp_path, monkeypatch, capsys):
    """The links of an untrusted folder may point anywhere."""
    monkeypatch.chdir(tmp_path)
    sizes = ["--preset", "smoke", "--steps", "4", "--characters", "6000", "--sample", "3"]
    assert cli.main(["train", "char-lm", *sizes, "--run", "run"]) == 0
    run, precious = tmp_path / "run", tmp_path / "precious"
    precious.mkdir()
    written = {path.name: path.read_bytes() for path in run.iterdir()} | {
        PROGRESS: b"{}",
        LOCK: b"",
        "failure.txt": b"no",
    }
    (run / "result.json").unlink()
    for name, content in written.items():
        if name != "result.json":
            (precious / name).write_bytes(content)
            (run / name).unlink(missing_ok=True)
            (run / name).symlink_to(precious / name)
    assert cli.main(["train", "char-lm", "--run", "run", "--resume"]) == 0
    assert cli.main(["report", "run"]) == 0
    assert {path.name: path.read_bytes() for path in precious.iterdir()} == {
        name: content for name, content in written.items() if name != "result.json"
    }


def test_a_report_deletes_no_figures_of_a_linked_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sizes = ["--preset", "smoke", "--steps", "2", "--characters", "6000", "--sample", "3"]
    assert cli.main(["train", "char-lm", *sizes, "--run", "runs/run"]) == 0
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "family.png").write_bytes(b"precious")
    (tmp_path / "runs" / "figures").symlink_to(tmp_path / "precious")
    (tmp_path / "runs" / "report.md").write_text("![](figures/family.png)\n")
    assert cli.main(["report", "runs"]) == 0
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["family.png"]
    assert not (tmp_path / "runs" / "figures").is_symlink()


def test_progress_replaces_a_pipe_and_a_link(tmp_path):
    (tmp_path / "precious").write_text("precious")
    os.mkfifo(tmp_path / PROGRESS)
    Run(tmp_path).show_progress(3, 1.5)
    assert json.loads((tmp_path / PROGRESS).read_text()) == {"step": 3, "seconds": 1.5}
    (tmp_path / PROGRESS).unlink()
    (tmp_path / PROGRESS).symlink_to(tmp_path / "precious")
    Run(tmp_path).show_progress(4, 2.5)
    assert Run(tmp_path).progress() == (4, 2.5)
    assert (tmp_path / "precious").read_text() == "precious"
