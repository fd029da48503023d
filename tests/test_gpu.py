"""What was measured on a GPU stands on its page, and what is checked there lies there."""

import json
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


def test_tables_are_the_kept_measurements(gpu, tmp_path):
    kept = json.loads(gpu.KEPT.read_text(encoding="utf-8"))
    gpu.write_tables(tmp_path, gpu.table_names(kept), gpu.page(kept))
    for file in tmp_path.glob("*.csv"):
        committed = ROOT / "docs" / "measurements" / file.name
        assert committed.read_text() == file.read_text(), "run benchmarks/gpu.py --output-dir docs/measurements"
    assert set(kept["checks"]) <= set(Cell.names()), "cells that are gone"


def test_rows_are_as_wide_as_their_head(gpu):
    for block in gpu.page(json.loads(gpu.KEPT.read_text(encoding="utf-8"))).split("\n\n"):
        assert len({line.count("|") for line in block.splitlines()}) == 1, block


def test_what_fails_is_told(gpu):
    kept = json.loads(gpu.KEPT.read_text(encoding="utf-8"))
    kept["checks"]["delta"] = {"failed": "more than 4 minutes"}
    kept["checks"]["sum"]["wrong"] = {"compiled: is_causal": "off by 1"}
    page = gpu.page(kept)
    assert f"{len(kept['checks']) - 2} of {len(kept['checks'])} cells pass" in page
    assert "delta: more than 4 minutes" in page
    assert "sum: {'compiled: is_causal': 'off by 1'}" in page


@pytest.mark.parametrize("name", ["delta", "srwm"])
def test_samples_lie_on_the_default_device(name):
    with torch.device("meta"):
        a = scan_checks.arguments(Cell.from_name(name), scan_checks.BRIEF)
    assert all(leaf.is_meta for leaf in tree_leaves(tuple(a)) if leaf is not None)
    assert not can_be_read(a.reset)


def test_checks_run_on_a_device(monkeypatch):
    seen = []
    checks = {"lies somewhere": lambda cell, backend: seen.append(torch.empty(0).device.type)}
    monkeypatch.setattr(testing, "checks_in", lambda module: checks)
    assert dict(run_checks(Cell.from_name("sum"), "meta"))["compiled: lies somewhere"] == ""
    assert set(seen) == {"meta"}
