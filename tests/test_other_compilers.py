"""Every cell with other compilers and for other systems. `make test-all` runs these tests."""

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
        available = importlib.util.find_spec("ziglang") if program == sys.executable else shutil.which(program)
        if not available:
            pytest.skip(f"needs {'ziglang' if program == sys.executable else program}")


@pytest.mark.parametrize("target_name", PROGRAMS)
@pytest.mark.parametrize("name", NAMES)
def test_the_c_example_of_every_cell_runs(name, target_name, tmp_path):
    compiler, runner = PROGRAMS[target_name]
    require(compiler[0], *runner)
    # Some cells amplify the rounding of float32, which depends on the compiler.
    check_example(name, "float64", tmp_path / "made", compiler, runner)


@pytest.mark.parametrize("compiler", ["clang++", " ".join(ZIG)], ids=["clang", "zig"])
@pytest.mark.parametrize("name", NAMES)
def test_kernels_of_other_compilers_equal_the_reference(name, compiler, monkeypatch):
    require(compiler.split()[0])
    for module, known in ((forms, "_SPECIALISATIONS"), (forms, "BY_KEY"), (op, "_BY_SHAPES")):
        monkeypatch.setattr(module, known, {})
    monkeypatch.setenv("CXX", compiler)
    cell, shape = Cell.from_name(name), Shape(2, 5, 3, 4, 6)
    arguments = scan_checks.arguments(cell, shape, torch.float32)
    want = scan_checks.results_and_gradients(cell, "reference", arguments.to(torch.float64))
    scan_checks.assert_close(scan_checks.results_and_gradients(cell, "compiled", arguments), want, torch.float32, shape)


@pytest.mark.parametrize("system", ["x86_64-windows", "aarch64-macos", "aarch64-linux"])
@pytest.mark.parametrize("name", NAMES)
def test_kernels_compile_for_another_system(name, system, tmp_path, monkeypatch):
    """Libraries link, and export the functions of the kernels."""
    require(sys.executable)
    monkeypatch.setattr(target, "lanes", lambda dtype: 16 // dtype.itemsize)  # as on any CPU
    cell = Cell.from_name(name)
    state, inputs, *params = samples(cell, torch.float32)
    arguments = cell, sizes_of(cell, [*inputs, *state, *sum(params, ())]), torch.float32
    spec, stages = CellSpec(*arguments), passes(*arguments)
    for kind, text in (target.sources(spec, stages) | target.one_step_sources(spec, stages)).items():
        code, library = tmp_path / f"{kind}.cpp", tmp_path / f"{kind}.so"
        code.write_text(text)
        flags = ["-target", system, "-std=gnu++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-w"]
        subprocess.run([*ZIG, *flags, code, "-o", library], check=True)
        content = library.read_bytes()
        assert all(name.encode() in content for name in (kind.replace("-", "_"), "has_threads"))
