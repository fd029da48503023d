"""The benchmark and the checks of GPUs run without a GPU."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves

from fastweights import Cell, testing
from fastweights.core.padding import can_be_read
from fastweights.testing import run_checks, scan_checks

ROOT = Path(__file__).parents[1]


@pytest.fixture
def gpu(benchmark_script):
    return benchmark_script("gpu")


RUNS = (" delta chunkwise", " delta softmax", " delta flash", "delta-rnn", " delta-net training")


def test_every_path_of_the_benchmark_runs_without_a_gpu(tmp_path):
    """A second run skips all rows of the file, including failed rows."""
    pytest.importorskip("triton")
    file = tmp_path / "gpu.csv"
    command = [sys.executable, str(ROOT / "tests" / "interpreted_gpu.py"), "--csv", str(file), "--only", *RUNS]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(file.read_text().splitlines()))
    results = {(row["part"], row["inputs"], row["cell"], row["run"]): row["result"] for row in rows}
    missing = results.pop(("chunks", "bfloat16", "delta", "flash-linear-attention"))
    assert missing == "ok" or missing.startswith("ModuleNotFoundError")
    assert {part for part, *_ in results} == {"checks", "chunks", "recurrent", "model"}
    assert set(results.values()) == {"ok"}, results
    again = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert (again.returncode, again.stdout) == (0, ""), again.stderr


def test_rows_are_written_at_once_with_their_ratio(gpu, tmp_path):
    table, key = gpu.Table(tmp_path / "gpu.csv", "a card"), ("chunks", "long", "float32", "delta", "chunkwise")
    table.add(key, {"graph ms": 3.0, "result": "ok"})
    table.add(("chunks", "long", "bfloat16", "delta", gpu.FLA), {"graph ms": 2.0, "result": "ok"})
    again = gpu.Table(tmp_path / "gpu.csv", "a card")
    assert [row["ratio to fla"] for row in again.rows.values()] == ["1.50", "1.00"]
    assert not again.wants(key, [])
    assert gpu.Table(tmp_path / "gpu.csv", "another card").wants(key, ["delta"])
    assert not gpu.Table(tmp_path / "gpu.csv", "another card").wants(key, ["kda"])


def test_no_row_begins_after_the_time_limit(gpu, tmp_path, capsys):
    table, calls = gpu.Table(tmp_path / "gpu.csv", "a card"), []
    tasks = [gpu.Task(("chunks", "", "", str(n), ""), lambda n=n: calls.append(n) or {}) for n in range(3)]
    gpu.run_all(tasks, table, gpu.machine(True), end=0.0)
    assert not calls
    assert capsys.readouterr().out == "3 rows are left. Run the same command again to continue.\n"


def test_failed_row_has_the_reason(gpu):
    assert gpu.tried(lambda: {}["x"]) == {"result": "KeyError: 'x'"}


@pytest.mark.parametrize("name", ["delta", "srwm"])
def test_samples_are_on_the_default_device(name):
    with torch.device("meta"):
        a = scan_checks.arguments(Cell.from_name(name), scan_checks.BRIEF)
    assert all(leaf.is_meta for leaf in tree_leaves(tuple(a)) if leaf is not None)
    assert not can_be_read(a.reset)


def test_checks_run_on_a_device(monkeypatch):
    devices = []
    checks = {"allocates": lambda cell, backend: devices.append(torch.empty(0).device.type)}
    monkeypatch.setattr(testing, "checks_in", lambda module: checks)
    assert dict(run_checks(Cell.from_name("sum"), "meta"))["compiled: allocates"] == ""
    assert set(devices) == {"meta"}
