"""Kernels build with any compiler: without some flags, without OpenMP, or from a Python package."""

import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fastweights import Cell, InputError, explain, scan
from fastweights.compiler import op
from fastweights.compiler.errors import Unbuilt
from fastweights.compiler.specialise import specialisations as forms
from fastweights.compiler.targets.cpp import compiler, flags, kernel, toolchain
from fastweights.compiler.targets.cpp import threads as sharing
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_inputs

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
zig = pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="needs ziglang")
OPTIONAL = [choice[0] for choice in flags.CHOICES]
SMALL = Shape(B=2, T=7, H=3, K=5, V=4)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Empty cache of kernels and compilers, on disk and in memory."""
    forget(monkeypatch)
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def forget(monkeypatch):
    for module, name in ((forms, "_SPECIALISATIONS"), (forms, "BY_KEY"), (op, "_BY_SHAPES"), (toolchain, "_KNOWN")):
        monkeypatch.setattr(module, name, {})
    monkeypatch.setattr("fastweights.call.plan._PLANS", {})


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Makes `$CXX` a script in front of g++."""

    def make(script, arguments=""):
        path = tmp_path / "fake compiler"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("CXX", f"{shlex.quote(str(path))} {arguments}")
        return path

    return make


def refusing(*unknown):
    """Script of a compiler that fails with any of these flags."""
    cases = "\n".join(f'[ "$a" = "{x}" ] && {{ echo "error: unknown option {x}" >&2; exit 1; }}' for x in unknown)
    return f'for a in "$@"; do\n{cases}\ndone\nexec g++ "$@"'


def runs():
    """Asserts that the compiled backend equals the reference."""
    cell = Cell.from_name("delta")
    inputs = sample_inputs(cell, SMALL)
    got, want = (scan(cell, inputs, backend=backend)[0] for backend in ("compiled", "reference"))
    scan_checks.assert_close({"y": got}, {"y": want}, torch.float64)


SEVERAL_FLAGS = [
    ["-march=native", "-mcpu=native"],
    ["-std=gnu++20", "-std=gnu++2a"],
    ["-std=gnu++20", "-march=native", "-w", "--param=max-completely-peeled-insns=50", "-fopenmp"],
]
ONE_FLAG = [[flag] for flag in (*flags.BASES[0], *OPTIONAL, "-fopenmp")]


@pytest.mark.parametrize(
    "unknown", [*SEVERAL_FLAGS, *(pytest.param(flag, marks=pytest.mark.slow) for flag in ONE_FLAG)], ids=" ".join
)
def test_only_unknown_flags_are_left_out(unknown, fake):
    fake(refusing(*unknown))
    chosen = toolchain.toolchain()
    assert not {*unknown} & {*chosen.flags, *chosen.threads}
    assert {*flags.BEST} - {*unknown} <= {*chosen.flags}
    assert bool(chosen.threads) == ("-fopenmp" not in unknown)
    runs()


def test_arguments_in_cxx_are_kept(fake):
    fake('echo "$@" >> "$(dirname "$0")/log"\nexec g++ "$@"', "-DMINE=1 -O1")
    runs()
    lines = (Path(shlex.split(os.environ["CXX"])[0]).parent / "log").read_text().splitlines()
    assert all(line.startswith("-DMINE=1 -O1 ") for line in lines)


def test_a_compiler_is_probed_once(fake, cache, monkeypatch):
    """Other processes read the result of the probe."""
    fake(refusing("-w"))
    first = toolchain.toolchain()
    monkeypatch.setattr(toolchain, "attempt", lambda *_: pytest.fail("probed again"))
    assert toolchain.toolchain() == first
    monkeypatch.setattr(toolchain, "_KNOWN", {})
    assert toolchain.toolchain() == first


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"flags": 1, "threads": []}', "\0"])
def test_a_damaged_probe_result_is_replaced(damage, cache, monkeypatch):
    first = toolchain.toolchain()
    (file,) = cache.glob("compiler-*.json")
    for content, mode in ((damage, 0o600), (json.dumps({"flags": ["-mine"], "threads": []}), 0o666)):
        file.write_text(content)
        file.chmod(mode)
        monkeypatch.setattr(toolchain, "_KNOWN", {})
        assert toolchain.toolchain() == first


def test_several_processes_may_probe_a_compiler_at_once(cache):
    code = "from fastweights.compiler.targets.cpp.toolchain import toolchain; print(toolchain())"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert {process.communicate()[0].strip() for process in processes} == {str(toolchain.toolchain())}
    assert len(list(cache.iterdir())) == 1


UNLOADABLE = """
exec g++ "$@" -x c++ - <<'END'
extern "C" int missing_function();
int user() { return missing_function(); }
END
"""


def test_a_library_that_does_not_load_is_built_without_openmp(fake, caplog):
    fake(f'case "$*" in *-fopenmp*) {UNLOADABLE}\n;; esac\nexec g++ "$@"')
    runs()
    assert not toolchain.toolchain().threads
    (message,) = [record.message for record in caplog.records]
    assert "threads of Python instead of OpenMP" in message
    assert "undefined symbol: missing_function" in message
    assert "nstall" not in message


def test_a_library_that_never_loads_is_refused_with_the_loaders_message(fake):
    fake(UNLOADABLE)
    with pytest.raises(InputError, match=r"do not load .*undefined symbol: missing_function"):
        scan(Cell.from_name("delta"), sample_inputs(Cell.from_name("delta"), SMALL), backend="compiled")


def test_a_changed_compiler_is_probed_again(fake, tmp_path, caplog):
    """For example, OpenMP was removed after the probe, and the file of the compiler is unchanged."""
    fake(f'[ -e "{tmp_path}/gone" ] || exec g++ "$@"\n{refusing("-fopenmp")}')
    assert toolchain.toolchain().threads
    (tmp_path / "gone").touch()
    runs()
    assert not toolchain.toolchain().threads


@pytest.mark.parametrize("script", ["echo 'x.cpp:1: error: no' >&2", "echo no >&2", ":"])
def test_explain_reports_a_failing_compiler(script, fake):
    fake(f"{script}\nexit 3")
    cell = Cell.from_name("delta-rnn")
    explanation = explain(cell, sample_inputs(cell, SMALL))
    assert explanation.chosen != "compiled"
    reason = explanation.reasons["compiled"]
    assert reason.startswith("cannot: the compiler")
    assert ("no" if "no" in script else "exit status 3") in reason
    assert "nstall" not in reason
    assert "name another one in $CXX" in reason


def test_explain_reports_kernels_built_before_the_compiler_broke(fake, tmp_path, monkeypatch):
    fake(f'[ -e "{tmp_path}/broken" ] && exit 1\nexec g++ "$@"')
    runs()
    (tmp_path / "broken").touch()
    for path in (tmp_path / "kernels").glob("compiler-*.json"):
        path.unlink()
    forget(monkeypatch)
    cell = Cell.from_name("delta")
    assert explain(cell, sample_inputs(cell, SMALL)).chosen == "compiled"


def test_without_a_compiler_the_remedy_is_to_install_one(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(compiler, "PACKAGE", "no_such_package")
    assert "Install one (pip install 'fastweights[compiler]'" in toolchain.missing_requirement()
    with pytest.raises(Unbuilt, match="Install one"):
        toolchain.toolchain()


@zig
def test_the_compiler_of_a_python_package_is_the_last_choice(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    assert Path(compiler.compiler()[0]).name != "zig"
    monkeypatch.setenv("PATH", "")
    assert Path(compiler.compiler()[0]).stem == "zig"
    runs()
    monkeypatch.setenv("CXX", "/nonexistent")
    assert compiler.compiler() == []


LIBRARIES = Path("/torch/lib")
MACOS = ("-Xpreprocessor", "-fopenmp", f"{LIBRARIES}/libomp.dylib", f"-Wl,-rpath,{LIBRARIES}")


@pytest.mark.parametrize(
    ("platform", "command", "files", "expected"),
    [
        ("linux", ["g++"], ["libgomp.so.1"], [("-fopenmp", f"{LIBRARIES}/libgomp.so.1")]),
        ("linux", ["clang++"], [], [("-fopenmp",)]),
        ("darwin", ["/usr/bin/c++"], ["libomp.dylib"], [MACOS]),
        ("darwin", ["/usr/bin/c++"], [], [("-fopenmp",)]),
        ("win32", ["clang++.exe"], ["libiomp5md.dll"], []),
        *((platform, ["/x/zig", "c++"], ["libomp.dylib"], []) for platform in ("linux", "darwin", "win32")),
        ("linux", ["/usr/bin/python", "-m", "ziglang", "c++"], [], []),
    ],
)
def test_flags_of_openmp_on_every_platform(platform, command, files, expected, monkeypatch):
    """A pure function, so that macOS and Windows can be tested on any machine."""
    monkeypatch.setattr(Path, "glob", lambda self, name: [self / file for file in files if Path(file).match(name)])
    assert flags.openmp(platform, command, LIBRARIES) == expected


def results(cell, threads):
    """Results and gradients of a sequence, and results of one time step, with a number of threads."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        whole = scan_checks.results_and_gradients(cell, "compiled", scan_checks.arguments(cell, Shape(3, 5, 3, 4, 3)))
        step = scan_checks.arguments(cell, Shape(3, 1, 3, 4, 3))
        with torch.no_grad():
            y, state = scan(cell, step.inputs, step.state, step.params, backend="compiled")
        return whole | {"step": y} | {f"step_{name}": x for name, x in state._asdict().items()}
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["delta", "srwm", "delta-lstm"])
def test_threads_of_python_equal_those_of_openmp(name, fake, monkeypatch):
    """Bit-identical for any number of threads, which is that of PyTorch."""
    monkeypatch.setattr(kernel, "THREAD", 1)
    monkeypatch.setenv("CXX", "g++")
    cell = Cell.from_name(name)
    want = results(cell, 2)
    forget(monkeypatch)
    fake(refusing("-fopenmp"))
    used = []
    monkeypatch.setattr(kernel, "share", lambda call, num_heads, n: used.append(n) or sharing.share(call, num_heads, n))
    for threads in (1, 2, 4, 100):
        got = results(cell, threads)
        assert all(torch.equal(got[name], want[name]) for name in want)
        assert {*used} == ({min(threads, 9)} if threads > 1 else set())
        used.clear()


@pytest.mark.parametrize(("num_heads", "threads"), [(1, 1), (5, 2), (9, 9), (100, 7)])
def test_every_head_is_computed_once(num_heads, threads):
    computed = []
    sharing.share(lambda first, last: computed.extend(range(first, last)), num_heads, threads)
    assert sorted(computed) == list(range(num_heads))
