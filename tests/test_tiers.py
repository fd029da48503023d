"""`make test` holds every part to every property, and `make test-all` leaves nothing out."""

import re
from collections import Counter
from pathlib import Path

import pytest
import torch

import test_cells
import test_layers
from fastweights import Cell
from fastweights.testing import checks_in, layer_checks, scan_checks
from tiers import CORE, OF_SHAPES, OF_TRACERS, OTHERS, QUICK, shapes_by_tier

ROOT = Path(__file__).parents[1]


def in_make_test(function):
    """The identifiers of a test's cases that `make test` runs."""
    (cases,) = (mark for mark in function.pytestmark if mark.name == "parametrize")
    return [case.id for case in cases.args[1] if not any(mark.name == "slow" for mark in case.marks)]


@pytest.mark.parametrize("name", Cell.names())
def test_every_property_of_a_cell_is_in_make_test(name):
    backends = test_cells.RUNS_ON[name]
    cases = [case.removeprefix(f"{name}-") for case in in_make_test(test_cells.test_guarantee)]
    for check in checks_in(scan_checks):
        held = {backend for backend in backends if f"{backend}-{check}" in cases}
        assert held >= ({"compiled"} if check in OF_TRACERS else set(backends)), check


def test_every_property_of_a_layer_is_in_make_test():
    cases = [mark.args[1] for mark in test_layers.test_guarantee.pytestmark if mark.name == "parametrize"]
    assert [len(case) for case in cases] == [len(test_layers.MAKERS), len(checks_in(layer_checks))]


@pytest.mark.parametrize("name", Cell.names())
def test_the_shapes_of_both_tiers_are_all_shapes(name):
    for dtype in (torch.float64, torch.float32):
        now, later = shapes_by_tier(name, dtype)
        assert Counter(now + later) == Counter(scan_checks.SHAPES[dtype])
        assert scan_checks.ODD in now
        assert name not in CORE or not later


@pytest.mark.parametrize("pair", OTHERS, ids=str)
def test_every_shape_in_every_dtype_meets_ordinary_cells_in_make_test(pair):
    dtype, shape = pair
    assert sum(shape in shapes_by_tier(name, dtype)[0] for name in set(Cell.names()) - set(CORE)) >= 10


def test_tiers_are_of_checks_that_are_there():
    assert {*OF_SHAPES, *OF_TRACERS, *QUICK} <= set(checks_in(scan_checks))
    assert set(CORE) <= set(Cell.names())


def test_continuous_integration_runs_every_tier_once():
    """`make test` takes its selection from pyproject.toml; `make test-slow` takes the complement."""
    assert "-m 'not slow'" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = dict(re.findall(r"^(\S+): \S+\n\t\$\(PYTEST\)(.*)$", makefile, re.M))
    assert {name: commands[name].strip() for name in ("test", "test-slow", "test-all")} == {
        "test": "",
        "test-slow": "-m slow",
        "test-all": '-m ""',
    }
    assert re.findall(r"^make (\S+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.M) == [
        "lint",
        "test",
        "test-slow",
    ]
