"""Every cell by other compilers and for other machines: `make test-all` runs these tests."""

import importlib.util
import shutil
import subprocess
import sys

import pytest
import torch

from fastweights import Cell
from fastweights.compiler import op
from fastweights.compiler.op import sizes_of
from fastweights.compiler.pipeline import passes
from fastweights.compiler.specialise import specialisations as forms
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.cpp import target
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape
from test_c_interface import check_example, samples

pytestmark = pytest.mark.slow
NAMES = Cell.names()
ZIG = [sys.executable, "-m", "ziglang", "c++", "-nostdlib++", "-fno-exceptions"]
PROGRAMS = {
    "clang": (["clang++"], []),
    "aarch64": (["aarch64-linux-gnu-g++", "-static"], ["qemu-aarch64"]),
    "zig-aarch64": ([*ZIG, "-target", "aarch64-linux-musl"], ["qemu-aarch64"]),
}


def require(*programs):
    for program in programs:
        found = importlib.util.find_spec("ziglang") if program == sys.executable else shutil.which(program)
        if not found:
            pytest.skip(f"needs {'ziglang' if program == sys.executable else program}")


@pytest.mark.parametrize("how", PROGRAMS)
@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_cell_runs(name, how, tmp_path):
    compiler, runner = PROGRAMS[how]
    require(compiler[0], *runner)
    # In float64: in float32 some cells amplify rounding, which differs from compiler to compiler.
    check_example(name, "float64", tmp_path / "made", compiler, runner)


@pytest.mark.parametrize("compiler", ["clang++", " ".join(ZIG)], ids=["clang", "zig"])
@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_those_of_the_reference(name, compiler, monkeypatch):
    require(compiler.split()[0])
    for module, known in ((forms, "_SPECIALISATIONS"), (forms, "BY_KEY"), (op, "_BY_SHAPES")):
        monkeypatch.setattr(module, known, {})
    monkeypatch.setenv("CXX", compiler)
    cell, shape = Cell.from_name(name), Shape(2, 5, 3, 4, 6)
    given = scan_checks.arguments(cell, shape, torch.float32)
    want = scan_checks.results_and_gradients(cell, "reference", given.to(torch.float64))
    scan_checks.assert_close(scan_checks.results_and_gradients(cell, "compiled", given), want, torch.float32, shape)


@pytest.mark.parametrize("system", ["x86_64-windows", "aarch64-macos", "aarch64-linux"])
@pytest.mark.parametrize("name", NAMES)
def test_kernels_compile_for_another_system(name, system, tmp_path, monkeypatch):
    """As libraries: what they call is there, and so are their functions."""
    require(sys.executable)
    monkeypatch.setattr(target, "lanes", lambda dtype: 16 // dtype.itemsize)  # as on any CPU
    cell = Cell.from_name(name)
    state, inputs, *params = samples(cell, torch.float32)
    arguments = cell, sizes_of(cell, [*inputs, *state, *sum(params, ())]), torch.float32
    spec, found = CellSpec(*arguments), passes(*arguments)
    for way, text in (target.sources(spec, found) | target.one_step_sources(spec, found)).items():
        code, library = tmp_path / f"{way}.cpp", tmp_path / f"{way}.so"
        code.write_text(text)
        flags = ["-target", system, "-std=gnu++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-w"]
        subprocess.run([*ZIG, *flags, code, "-o", library], check=True)
        content = library.read_bytes()
        assert all(name.encode() in content for name in (way.replace("-", "_"), "has_threads"))
