"""Cells as C++ with a C interface: programs without Python equal the reference."""

import ctypes
import re
import shutil
import subprocess
from functools import cache

import pytest
import torch

from fastweights import cli
from fastweights.cell import Cell
from fastweights.compiler.op import sizes_of
from fastweights.compiler.pipeline import write
from fastweights.dispatch import scan
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state
from fastweights.testing.tolerance import error, tolerance
from tiers import CORE

SHAPE = Shape(2, 5, 3, 4, 6)
FLAGS = ["-O1", "-Wno-psabi", "-Werror"]
pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


def samples(cell, dtype):
    """State, inputs, and params if there are any, in the order of `write`."""
    records = [sample_state(cell, SHAPE, dtype), sample_inputs(cell, SHAPE, dtype), sample_params(cell, SHAPE, dtype)]
    return [record for record in records if record is not None]


def write_sample(cell, dtype, folder):
    state, inputs, *params = samples(cell, dtype)
    return write(cell, sizes_of(cell, [*inputs, *state, *sum(params, ())]), dtype, folder)


@pytest.fixture(scope="module")
def library_of(tmp_path_factory):
    """Builds one program with several cells in float32."""

    @cache
    def build(names):
        folder = tmp_path_factory.mktemp("cells")
        code = [write_sample(Cell.from_name(name), torch.float32, folder / name)[0] for name in names]
        subprocess.run(["g++", *FLAGS, "-shared", "-fPIC", *code, "-o", folder / "cells.so"], check=True)
        return ctypes.CDLL(str(folder / "cells.so"))

    return build


def structure(record):
    return (ctypes.c_void_p * len(record))(*(x.data_ptr() for x in record))


@pytest.mark.parametrize(
    ("names", "name"),
    [
        *(pytest.param(CORE, name, id=f"{name} of few") for name in CORE),
        *(
            pytest.param(tuple(Cell.names()), name, id=f"{name} of all", marks=pytest.mark.slow)
            for name in Cell.names()
        ),
    ],
)
def test_step_and_sequence_equal_the_reference(library_of, names, name):
    """One call after the other: the second call starts from the final state of the first."""
    cell = Cell.from_name(name)
    state, inputs, *params = samples(cell, torch.float32)
    run = getattr(library_of(names), f"{name.replace('-', '_')}_run")
    want_params = cell.Params(*(x.double() for x in params[0])) if params else None
    want = cell.State(*(x.double() for x in state))
    for T in (1, SHAPE.T):
        x = cell.Inputs(*(x[:, :T].contiguous() for x in inputs))
        want_y, want = scan(cell, cell.Inputs(*(x.double() for x in x)), want, want_params, backend="reference")
        y = torch.empty(want_y.shape)
        sizes = map(ctypes.c_int64, (SHAPE.B, T, SHAPE.H))
        run(*map(structure, [state, x, *params]), ctypes.c_void_p(y.data_ptr()), *sizes)
        assert error(y, want_y) < tolerance(torch.float32).forward
        for field, got, want_state in zip(cell.State._fields, state, want, strict=True):
            assert error(got, want_state) < tolerance(torch.float32).forward, field


@pytest.mark.parametrize(("name", "dtype"), [("delta", "float32"), ("delta", "float64"), ("srwm", "float32")])
def test_example_runs_without_python(name, dtype, tmp_path):
    """It needs a compiler only, and a C compiler accepts the header."""
    check_example(name, dtype, tmp_path / "made", ["g++"], [])
    command = ["gcc", "-std=c99", "-Wall", "-Werror", "-fsyntax-only", "example.c"]
    subprocess.run(command, cwd=tmp_path / "made", check=True)


def check_example(name, dtype, folder, compiler, runner):
    """The example of a cell, built by a compiler and run by a command, equals the reference."""
    cell = Cell.from_name(name)
    sizes = [f"{axis}={size}" for axis, size in cell.example_sizes.items()]
    assert cli.main(["compile", name, "--size", *sizes, "--output-dir", str(folder), "--dtype", dtype]) == 0
    text = (folder / "example.c").read_text()
    build, run = re.search(r"/\* g\+\+ (.*) && (\S+) \*/", text).groups()
    subprocess.run([*compiler, *build.split()], cwd=folder, check=True)
    out = subprocess.run([*runner, run], cwd=folder, check=True, capture_output=True, text=True, env={}).stdout
    num_heads, T = (int(re.search(rf"{word} = (\d+)", text)[1]) for word in ("HEADS", "TIME"))
    records = [[(1, T, num_heads), cell.Inputs, "Inputs"], [(num_heads,), cell.Params, "Params"]]
    inputs, params = (
        record
        and record(*(example_array((*leading, *slot.shape(cell.example_sizes))) for slot in cell.slots[kind].values()))
        for leading, record, kind in records
    )
    _, state = scan(cell, cell.Inputs(*(x[:, :1] for x in inputs)), params=params, backend="reference")
    y, _ = scan(cell, inputs, state, params, backend="reference")
    got = torch.tensor([float(line) for line in out.split()], dtype=torch.float64)
    assert error(got, y.flatten()) < tolerance(getattr(torch, dtype)).forward


def example_array(shape):
    """An array with the numbers of the example."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 7 + 1).double().reshape(shape) / 10


def test_example_is_short(tmp_path):
    *_, example = write_sample(Cell.from_name("delta"), torch.float32, tmp_path)
    assert len(example.read_text().splitlines()) <= 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["delta", "--size", "K=16"], r"size must be given for every axis, V=N K=N, got \['K=16'\]"),
        (["delta", "--size", "K=16", "V=0"], "size must be AXIS=N"),
        (["detla", "--size", "K=16", "V=16"], "Did you mean 'delta'"),
        (["./no.py:rule", "--size", "K=16", "V=16"], "no.py"),
    ],
)
def test_invalid_arguments_give_an_error_of_one_line(arguments, message, tmp_path, capsys):
    assert cli.main(["compile", *arguments, "--output-dir", str(tmp_path / "made")]) == 2
    assert re.search(message, error_output := capsys.readouterr().err)
    assert error_output.count("\n") == 1
    assert not (tmp_path / "made").exists()


def test_cell_that_does_not_compile_gives_an_error_of_one_line(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from fastweights.signature import Key, Matrix, Value\n"
        "def rule(W: Matrix, k: Key, v: Value) -> Matrix:\n"
        "    return W + v[:, None] * k if k.sum() > 0 else W\n"
    )
    arguments = ["compile", f"{tmp_path}/mine.py:rule", "--size", "K=4", "V=4", "--output-dir", str(tmp_path / "made")]
    assert cli.main(arguments) == 2
    assert "cell must be a cell that compiles" in capsys.readouterr().err
