"""A few of the random cells of the fuzzers, which run in two processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TABLE = re.compile(r"^equal (\d+), refused (\d+), void (\d+), wrong 0, raw 0$", re.M)


def fuzzed(script: str, *flags: str) -> list[int]:
    """The number of cells that are equal, refused and void; none may be wrong or raise a raw error."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *flags]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stdout + result.stderr
    return [int(count) for count in TABLE.findall(result.stdout)[0]]


@pytest.mark.slow
def test_random_cells_are_equal_or_refused():
    equal, refused, void = fuzzed("fuzz_cells.py", "--number", "12", "--seed", "3")
    assert equal >= 6
    assert equal + refused + void == 12


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "number"), [("chunkwise", 40), ("compiled", 6), ("triton", 4)])
def test_random_affine_cells_are_equal_or_refused(backend, number):
    if backend == "triton":
        pytest.importorskip("triton")
    equal, refused, void = fuzzed("fuzz_affine.py", "--backend", backend, "--number", str(number), "--seed", "7")
    assert equal >= number / 2
    assert equal + refused + void == number
