"""A new rule needs one file only: its layer, kernels and tests follow from it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastweights

RULE = '''"""The delta rule with a decay after every write."""

import torch

from fastweights.signature import Decay, Key, Matrix, Rate, Value


def fading(W: Matrix, k: Key, v: Value, decay: Decay, beta: Rate) -> Matrix:
    """Delta rule with a decay after the write.

        W <- decay (W + beta (v - W k) k^T)

    Source: an example.

    Can: overwrite, fade.
    """
    return decay * (W + beta * torch.outer(v - W @ k, k))
'''


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Function that runs a Python module with a copy of the package that has one additional file."""
    folder = tmp_path_factory.mktemp("package")
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(fastweights.__file__).parent, folder / "fastweights", ignore=skip)
    (folder / "fastweights" / "rules" / "fading.py").write_text(RULE)
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""}

    def run(*arguments):
        command = [sys.executable, "-m", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)

    return run


@pytest.mark.parametrize("kind", ["rules", "cells", "layers"])
def test_the_new_rule_is_listed(package, kind):
    assert "fading " in package("fastweights.cli", "list", kind).stdout


def test_the_new_rule_compiles_and_runs_chunkwise(package):
    output = package("fastweights.cli", "explain", "fading").stdout
    assert "compiled   runs" in output
    assert "chunkwise  could run" in output


def test_the_new_rule_trains_by_its_name(package, tmp_path):
    result = package("fastweights.cli", "train", "char-lm", "--preset", "smoke", "--layer", "fading", "--run", tmp_path)
    assert result.returncode == 0, result.stderr
    assert "fading" in result.stdout


@pytest.mark.slow
def test_the_contract_tests_cover_the_new_rule(package):
    tests = [Path(__file__).with_name(name) for name in ("test_cells.py", "test_layers.py")]
    result = package("pytest", "-q", "-k", "fading", *tests, "-p", "no:cacheprovider")
    assert result.returncode == 0, result.stdout[-2000:]
    passed = int(result.stdout.splitlines()[-1].split(" passed")[0].split()[-1])
    assert passed >= 45, result.stdout[-2000:]


def test_the_new_rule_is_short():
    assert len(RULE.splitlines()) < 30
