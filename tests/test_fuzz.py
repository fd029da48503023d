"""A few of the random cells of `fuzz_cells.py`, in two processes that share a cache."""

import os
import re
import subprocess
import sys
from pathlib import Path


def test_random_cells_are_equal_or_refused():
    command = [sys.executable, str(Path(__file__).with_name("fuzz_cells.py")), "--number", "12", "--seed", "3"]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stdout + result.stderr
    (equal, refused) = map(int, re.findall(r"^equal (\d+), refused (\d+), wrong 0$", result.stdout, re.M)[0])
    assert equal >= 6
    assert equal + refused <= 12
