"""A process that trains keeps the memory that it frees."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from fastweights.training.malloc import use_arena_allocator

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 23)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

use_arena_allocator() if sys.argv[1] == "kept" else None
for _ in range(50):
    faults()
print(sum(faults() for _ in range(10)))
"""
PAGES = (4 << 23) // 4096
"""Of the tensor."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told")
def test_large_tensors_are_not_paged_in_anew():
    kept, not_kept = (
        int(subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, check=True).stdout)
        for how in ("kept", "not")
    )
    assert kept < PAGES / 10 < PAGES < not_kept
