"""Ahead-of-time kernels: the first call loads them, with and without a compiler."""

import shutil

import pytest
import torch

from fastweights import Cell, cli, explain, scan
from fastweights.compiler.specialise import specialisations as forms
from fastweights.compiler.targets.cpp import build
from fastweights.layers import make_layer
from fastweights.testing.samples import Shape, sample_inputs

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
RULE = """
from fastweights.signature import Key, Matrix, Value
def mine(W: Matrix, k: Key, v: Value) -> Matrix:
    return 0.75 * W + v[:, None] * k
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Empty kernel cache on disk and in memory."""
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "kernels"))
    forget(monkeypatch)
    return tmp_path / "kernels"


def forget(monkeypatch):
    monkeypatch.setattr(forms, "_SPECIALISATIONS", {})
    monkeypatch.setattr("fastweights.call.plan._PLANS", {})


def use_layer(name):
    """Runs a layer for training and for streaming."""
    layer, x = make_layer(name, 6, 2), torch.randn(2, 4, 6)
    y, state = layer(x)
    y.sum().backward()
    with torch.no_grad():
        layer(x[:, :1], state)


def use_cell(name):
    cell = Cell.from_function(name)
    _, state = scan(cell, sample_inputs(cell, Shape(2, 4, 2, 3, 5), torch.float32))
    scan(cell, sample_inputs(cell, Shape(2, 1, 2, 3, 5), torch.float32), state)


@pytest.mark.parametrize(
    ("name", "sizes", "use"),
    [
        ("delta-net", ["D=6", "H=2"], use_layer),
        ("srwm", ["D=6", "H=2"], use_layer),
        ("{}/mine.py:mine", ["D=6", "H=2"], use_layer),
        ("delta", ["K=3", "V=5"], use_cell),
    ],
)
@pytest.mark.parametrize("compiler", ["g++", "/nonexistent"])
def test_prebuilt_kernels_are_not_rebuilt(name, sizes, use, compiler, cache, tmp_path, monkeypatch, capsys, caplog):
    (tmp_path / "mine.py").write_text(RULE)
    name = name.format(tmp_path)
    monkeypatch.setenv("CXX", "g++")
    assert cli.main(["compile", name, "--size", *sizes]) == 0
    assert capsys.readouterr().out.startswith("Built: ")
    assert len(list(cache.glob("*.so"))) == 3  # forward and backward pass for any number of steps, and one step
    forget(monkeypatch)
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(build, "build", lambda *_: pytest.fail("built again"))
    use(name)
    assert not caplog.records


def test_explain_reports_prebuilt_kernels(cache, monkeypatch):
    cell = Cell.from_name("delta")
    assert cli.main(["compile", "delta", "--size", "K=3", "V=5"]) == 0
    monkeypatch.setenv("CXX", "/nonexistent")
    for K, chosen in ((3, "compiled"), (4, "chunkwise")):
        forget(monkeypatch)
        assert explain(cell, sample_inputs(cell, Shape(2, 4, 2, K, 5), torch.float32)).chosen == chosen


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lstm", "--size", "D=6", "H=2"], "layer must be a layer with kernels, got lstm"),
        (["delta-net", "--size", "D=7", "H=2"], "num_heads must be a divisor"),
        (["delta", "--size", "K=3"], "size must be given for every axis"),
        (["delta", "--size", "K=3", "V=5"], "there is no C++ compiler '/nonexistent', which $CXX names. Install one"),
    ],
)
def test_parts_without_kernels_are_refused_in_one_line(arguments, message, cache, monkeypatch, capsys, caplog):
    monkeypatch.setenv("CXX", "/nonexistent")
    assert cli.main(["compile", *arguments]) == 2
    assert message in (output := capsys.readouterr().err)
    assert output.count("\n") == 1
    assert not caplog.records


def test_without_a_private_cache_nothing_is_built(cache, monkeypatch, capsys):
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setattr(build, "build", lambda *_: pytest.fail("built"))
    assert cli.main(["compile", "delta", "--size", "K=3", "V=5"]) == 2
    assert "Set $FASTWEIGHTS_CACHE to a private folder" in capsys.readouterr().err
