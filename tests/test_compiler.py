"""The compiler: supported functions, messages, its cache, random cells, and `torch.utils.flop_counter`."""

import gc
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu, layer_norm, normalize, softplus
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from fastweights import Cell, InputError, cli, dispatch, explain, functional, scan
from fastweights.call import plan
from fastweights.call.scan_call import scan_call
from fastweights.call.tensors import Tensors
from fastweights.compiler import op, pipeline
from fastweights.compiler.specialise import specialisations as forms
from fastweights.compiler.specialise.guard import Guard
from fastweights.compiler.targets.cpp import build, kernel, scratch, toolchain
from fastweights.signature import Key, Matrix, Output, Rate, TensorSpec, Value
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_inputs
from fastweights.testing.scan_checks import arguments
from test_cells import RUNS_ON

SHAPES = [Shape(2, 7, 2, 3, 5), Shape(1, 5, 1, 20, 20), Shape(2, 6, 1, 8, 4)]


class Two(NamedTuple):
    A: Matrix
    B: Annotated[Tensor, TensorSpec("K V", "memory")]


class Memory(NamedTuple):
    W: Matrix


class Vector(NamedTuple):
    h: Output


class Three(NamedTuple):
    W: Annotated[Tensor, TensorSpec("3 V K", "memory")]
    c: Output


class Square(NamedTuple):
    W: Annotated[Tensor, TensorSpec("K K", "memory")]


class Inputs(NamedTuple):
    q: Key
    k: Key
    v: Value
    beta: Rate


class ThreeInputs(NamedTuple):
    q: Key
    k: Annotated[Tensor, TensorSpec("3 K", "key")]
    v: Annotated[Tensor, TensorSpec("3 V", "value")]
    beta: Annotated[Tensor, TensorSpec("3", "rate")]


class Params(NamedTuple):
    R: Annotated[Tensor, TensorSpec("V V", "weight")]
    b: Annotated[Tensor, TensorSpec("V", "bias")]


def two_matrices(state: Two, x: Inputs) -> tuple[Two, Value]:
    """A nonlinearity of no cell of the library, and two coupled matrices."""
    A = torch.sin(state.A) + torch.outer(x.v, x.k) / (1 + state.A**2)
    B = state.B - x.beta * torch.outer(x.k, A @ x.q)
    return Two(A, B), A @ (B @ x.v) / B.shape[0]


def normalised(state: Memory, x: Inputs) -> tuple[Memory, Value]:
    """Frobenius and layer norms."""
    W = state.W + x.beta * torch.outer(x.v, x.k)
    W = W / torch.linalg.vector_norm(W).clamp(min=1.0)
    return Memory(W), layer_norm(W @ x.q, x.v.shape) + normalize(x.v, dim=-1)


def gates(state: Three, x: ThreeInputs) -> tuple[Three, Value]:
    """Three matrices in one state, under vmap."""
    W = torch.vmap(lambda W, k, v, b: W + b * torch.outer(v - W @ k, k))(state.W, x.k.softmax(-1), x.v, x.beta)
    i, u, o = (torch.vmap(lambda W: W @ x.q)(W) + state.W @ x.k[0]).unbind(0)
    c = i.sigmoid() * u.tanh() + (1 - i.sigmoid()) * state.c
    return Three(W, c), o.sigmoid() * c


def inner_loop(state: Memory, x: Inputs) -> tuple[Memory, Value]:
    """A few steps of relaxation inside a step."""
    W = 0.9 * state.W + 0.5 * torch.outer(x.v, x.k)
    h = torch.relu(x.v)
    for _ in range(3):
        h = torch.relu(layer_norm(x.v + W @ (W.T @ h), x.v.shape))
    return Memory(W), h


def with_params(state: Vector, x: Inputs, params: Params) -> tuple[Vector, Value]:
    """Slow recurrent weights."""
    h = torch.tanh(params.R @ state.h + params.b * softplus(x.v)) * x.beta + (x.q @ x.k)
    return Vector(h), h.exp() / (h.exp() + 1)


def views(state: Two, x: Inputs) -> tuple[Two, Value]:
    """Views of every kind."""
    joined = torch.cat([x.q, x.v, x.k])
    rolled = torch.roll(joined, 2, 0).flip(0)
    a, b = torch.stack([x.v, 2 * x.v]).unbind(0)
    first = rolled[: len(x.v)] + rolled[-len(x.v) :] + joined[::2].sum() * a[0] + b
    A = torch.where(state.A > 0.5, state.A, 0.5 * state.A) + first[:, None] * x.k
    B = state.B.clone() + A.t() * 0.1 + x.q.unsqueeze(-1).expand(-1, len(x.v)) * A.amax()
    flat = A.flatten()[: len(x.v)] + B.reshape(-1)[-len(x.v) :] + torch.einsum("vk,k->v", A, x.q)
    return Two(A.tanh(), B.sigmoid()), flat + A.softmax(0).mean(1) + A.var(-1) + torch.split(first, 1)[0]


def elementwise(state: Square, x: Inputs) -> tuple[Square, Key]:
    """Elementwise functions, comparisons, and matrix products of rank two."""
    k = elu(x.k - 0.3) + 1
    k = k / k.sum()
    W = (state.W @ state.W).clamp(-1, 1) * 0.5 + torch.maximum(torch.outer(k, x.q), torch.outer(x.q, k)).sqrt()
    W = torch.where((W > 0.1) & ~(W > 0.9), W, W.abs() * x.beta.log().neg().log1p())
    return Square(W), (W @ x.q).log_softmax(-1) + torch.eye(len(k), dtype=k.dtype) @ k + (x.q**3).rsqrt()


CELLS = [two_matrices, normalised, gates, inner_loop, with_params, views, elementwise]


@pytest.mark.parametrize("function", CELLS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("dtype", "shapes"),
    [
        pytest.param(torch.float64, SHAPES[:1], id="float64"),
        pytest.param(torch.float32, SHAPES[1:2], id="float32"),
        pytest.param(torch.float64, SHAPES[1:], id="float64-other-shapes", marks=pytest.mark.slow),
        pytest.param(torch.float32, SHAPES[::2], id="float32-other-shapes", marks=pytest.mark.slow),
    ],
)
def test_user_defined_cell_compiles_without_registration(function, dtype, shapes):
    cell = Cell.from_function(function)
    for shape in shapes:
        arguments_of_cell = scan_checks.arguments(cell, shape, dtype)
        want = scan_checks.results_and_gradients(cell, "reference", arguments_of_cell.to(torch.float64))
        scan_checks.assert_close(
            scan_checks.results_and_gradients(cell, "compiled", arguments_of_cell), want, dtype, shape
        )


@pytest.mark.parametrize("function", [normalised, two_matrices, with_params], ids=lambda f: f.__name__)
def test_nan_propagates(function):
    scan_checks.check_nan_propagates(Cell.from_function(function), "compiled")


class One(NamedTuple):
    v: Value


def edge_cases(state: Vector, x: One) -> tuple[Vector, Annotated[Tensor, TensorSpec("5 V", "value")]]:
    """Functions that the kernels compute with their own series."""
    parts = [x.v.exp(), x.v.tanh(), x.v.sigmoid(), x.v.relu(), x.v.clamp(-1, 1)]
    return Vector(state.h), torch.stack(parts)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_functions_at_edge_cases(dtype):
    edges = [0.0, -0.0, 1e-30, -1e-4, 0.62, -0.63, 1.0, -20.0, 88.0, 89.5, -87.5, -103.0, 709.0, -745.0, 1e10, -1e10]
    numbers = torch.tensor([*edges, float("inf"), float("-inf"), float("nan")], dtype=dtype)
    cell = Cell.from_function(edge_cases)
    got, _ = scan(cell, cell.Inputs(numbers[None, None, None]), backend="compiled")
    want, _ = scan(cell, cell.Inputs(numbers[None, None, None]), backend="reference")
    torch.testing.assert_close(
        got, want, equal_nan=True, rtol=4 * torch.finfo(dtype).eps, atol=0.0 if dtype == torch.float64 else 1e-44
    )


def new_cell(scale: float) -> Cell:
    """A cell without a kernel, for a new `scale`."""

    def step(state: Memory, x: Inputs) -> tuple[Memory, Value]:
        W = state.W + scale * torch.outer(x.v, x.k)
        return Memory(W), W @ x.q

    return Cell.from_function(step)


def compare(cell: Cell) -> None:
    scan_arguments = scan_checks.arguments(cell, Shape(1, 4, 1, 3, 3))
    got, want = (
        scan_checks.results_and_gradients(cell, backend, scan_arguments) for backend in ("compiled", "reference")
    )
    scan_checks.assert_close(got, want, torch.float64)


def clear_caches() -> None:
    """A state like that of a new process, with only the cache on disk."""
    for cache_of_process in (forms._SPECIALISATIONS, forms.BY_KEY, op._BY_SHAPES, plan._PLANS):
        cache_of_process.clear()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    clear_caches()
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    clear_caches()


def sorts(state: Memory, x: Inputs) -> tuple[Memory, Value]:
    W = state.W + torch.outer(x.v.sort().values, x.k)
    return Memory(W), W @ x.q


def branches(state: Memory, x: Inputs) -> tuple[Memory, Value]:
    W = state.W + torch.outer(x.v, x.k) if x.beta > 0.5 else state.W
    return Memory(W), W @ x.q


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (sorts, ["aten.sort.default", "test_compiler.py", "x.v.sort().values", "softmax"]),
        (branches, ["test_compiler.py", "if x.beta > 0.5", "torch.where"]),
    ],
)
def test_error_names_the_line_that_does_not_compile_and_a_remedy(function, words):
    cell = Cell.from_function(function)
    inputs = sample_inputs(cell, Shape(1, 2, 1, 3, 3))
    with pytest.raises(InputError) as error:
        scan(cell, inputs, backend="compiled")
    for word in words:
        assert word in str(error.value)


def test_auto_falls_back_with_one_log_message(caplog):
    cell = Cell.from_function(sorts)
    inputs = sample_inputs(cell, Shape(1, 2, 1, 3, 3))
    dispatch._log_once.cache_clear()
    for _ in range(2):
        scan(cell, inputs)
    assert sum("compiled is passed over" in record.message for record in caplog.records) == 1
    assert explain(cell, inputs).chosen == "reference"


@pytest.mark.parametrize(
    ("name", "size", "T", "trains", "chosen"),
    [
        ("sum", 100, 64, True, "chunkwise"),
        ("sum", 100, 64, False, "compiled"),
        ("sum", 100, 65, True, "compiled"),
        ("sum", 256, 65, True, "chunkwise"),
        ("sum", 256, 65, False, "compiled"),
        ("delta", 100, 64, True, "compiled"),
        ("delta", 256, 64, True, "chunkwise"),
        ("delta", 256, 65, True, "compiled"),
        ("delta", 363, 65, True, "chunkwise"),
        ("gla", 363, 65, True, "compiled"),
        ("gla", 512, 65, True, "chunkwise"),
        ("mixture-of-memories", 163, 65, True, "compiled"),
        ("mixture-of-memories", 200, 65, True, "chunkwise"),
        ("mamba3", 363, 64, True, "compiled"),
        ("mamba3", 512, 64, True, "chunkwise"),
        ("titans", 512, 64, True, "compiled"),
    ],
)
def test_auto_trains_large_matrices_chunkwise(name, size, T, trains, chosen):
    cell = Cell.from_name(name)
    inputs = [x.requires_grad_(trains) for x in sample_inputs(cell, Shape(1, T, 1, size, size), torch.float32)]
    assert explain(cell, cell.Inputs(*inputs)).chosen == chosen


def test_auto_trains_large_matrices_chunkwise_on_cpus_only():
    cell = Cell.from_name("sum")
    inputs = [x.requires_grad_() for x in sample_inputs(cell, Shape(1, 64, 1, 100, 100), torch.float32)]
    on_cpu, on_meta = (scan_call(cell, Tensors(cell.Inputs(*(x.to(d) for x in inputs)))) for d in ("cpu", "meta"))
    assert dispatch._order(on_cpu)[0] == "chunkwise"
    assert dispatch._order(on_meta)[0] == "compiled"


def test_explain_builds_no_kernel(cache, monkeypatch):
    monkeypatch.setattr(build, "build", lambda *_: pytest.fail("built"))
    cell = new_cell(1.125)
    assert explain(cell, sample_inputs(cell, Shape(1, 2, 1, 3, 3))).chosen == "compiled"


def test_error_without_a_compiler(cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("fastweights.compiler.targets.cpp.compiler.PACKAGE", "no_package")
    cell = new_cell(1.25)
    inputs = sample_inputs(cell, Shape(1, 2, 1, 3, 3))
    with pytest.raises(
        InputError, match=r"there is no C\+\+ compiler\. Install one \(pip install 'fastweights\[compiler\]'"
    ):
        scan(cell, inputs, backend="compiled")
    assert explain(cell, inputs).chosen == "chunkwise"


def test_error_of_a_failing_compiler(cache, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    cell = new_cell(1.25)
    with pytest.raises(InputError, match=r"the compiler .*false fails .* Mend it, or name another one in \$CXX"):
        scan(cell, sample_inputs(cell, Shape(1, 2, 1, 3, 3)), backend="compiled")


def test_cache_may_be_read_only(tmp_path, cache, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "file" / "below"))
    compare(new_cell(1.5))


def test_disk_may_be_full(cache, monkeypatch):
    attempt = toolchain.attempt

    def full(arguments, library):
        if cache in library.parents:
            raise OSError(28, "No space left on device")
        return attempt(arguments, library)

    monkeypatch.setattr(toolchain, "attempt", full)
    compare(new_cell(1.75))
    assert not list(cache.glob("*.so"))
    assert not list(cache.glob("*build-*"))


def libraries(cache):
    """The built libraries of scans."""
    return sorted(cache.glob("*.so"))


@pytest.mark.parametrize("damage", [lambda x: x[:1000], lambda x: b"", lambda x: x[:2000] + b"?" + x[2001:]])
def test_damaged_kernels_are_rebuilt(cache, damage):
    compare(new_cell(2.0))
    intact = {library: library.read_bytes() for library in libraries(cache)}
    assert len(intact) == 2
    for library, content in intact.items():
        # Replaced, not overwritten: this process has the old file mapped.
        other = library.with_suffix(".new")
        other.write_bytes(damage(content))
        other.replace(library)
    clear_caches()
    compare(new_cell(2.0))
    assert {path: len(path.read_bytes()) for path in libraries(cache)} == {k: len(v) for k, v in intact.items()}


def test_backward_kernel_is_built_when_a_gradient_is_needed(cache):
    cell = new_cell(2.0)
    scan(cell, sample_inputs(cell, Shape(1, 4, 1, 3, 3), torch.float64), backend="compiled")
    (forward,) = libraries(cache)
    assert forward.name.startswith(f"{cell.name}-forward-")
    built = forward.stat().st_mtime_ns
    compare(cell)
    assert len(libraries(cache)) == 2
    assert forward.stat().st_mtime_ns == built


def test_kernel_on_disk_is_loaded_without_tracing(cache, monkeypatch):
    compare(new_cell(2.0))
    clear_caches()
    monkeypatch.setattr(pipeline, "trace", lambda *_: pytest.fail("traced"))
    compare(new_cell(2.0))


def forbid_compiler(monkeypatch):
    """Fails if a compiler process starts."""
    monkeypatch.setattr(toolchain, "attempt", lambda *_: pytest.fail("a compiler was started"))


def test_compiler_change_with_equal_code_builds_nothing(cache, monkeypatch):
    compare(new_cell(2.0))
    before = {library: library.stat().st_mtime_ns for library in libraries(cache)}
    clear_caches()
    monkeypatch.setattr("fastweights.compiler.targets.cpp.target.fingerprint", lambda target: "edited")
    forbid_compiler(monkeypatch)
    compare(new_cell(2.0))
    assert {library: library.stat().st_mtime_ns for library in libraries(cache)} == before
    clear_caches()
    monkeypatch.setattr(pipeline, "trace", lambda *_: pytest.fail("traced"))
    compare(new_cell(2.0))  # the record of the emitted code also serves the edited compiler


def test_digest_of_a_source_ignores_comments():
    assert build.source_digest("int a; // rule.py:3: a\n") == build.source_digest("int a; // rule.py:4: a\n")
    assert build.source_digest("int a;") != build.source_digest("int b;")


@pytest.mark.parametrize("content", [b"", b"0123", b"\xff" * 24, b"../../../../tmp/elsewhere", b"0" * 24])
def test_damaged_record_is_rewritten(cache, content, monkeypatch):
    compare(new_cell(2.0))
    records = {path: path.read_bytes() for path in cache.glob("*.record")}
    assert len(records) == 2
    for path in records:
        path.write_bytes(content)
    clear_caches()
    forbid_compiler(monkeypatch)
    compare(new_cell(2.0))
    assert {path: path.read_bytes() for path in records} == records


def test_record_that_others_may_write_is_not_read(cache, monkeypatch):
    compare(new_cell(2.0))
    (one, _) = sorted(cache.glob("*.record"))
    one.chmod(0o666)
    assert build._read_record(one.name) == ""


def test_records_are_private_under_any_umask(cache):
    before = os.umask(0)
    try:
        compare(new_cell(2.0))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in cache.glob("*.record")} == {0o600}


def test_different_constants_need_different_kernels(cache):
    compare(new_cell(2.0))
    compare(new_cell(3.0))
    assert len(libraries(cache)) == 4


def test_kernel_of_another_cpu_is_not_loaded(cache, monkeypatch):
    """As in a home directory that several machines share, or on a CPU without wide vectors."""
    compare(new_cell(2.25))
    clear_caches()
    monkeypatch.setattr(build, "cpu", lambda: "an old one")
    compare(new_cell(2.25))
    assert len(libraries(cache)) == 4


PROGRAM = """
import torch
from fastweights import Cell, scan
from fastweights.testing.samples import Shape, sample_inputs
delta = Cell.from_name("delta")
y, _ = scan(delta, sample_inputs(delta, Shape(1, 3, 1, 3, 2)), backend="compiled")
print(y.sum().item())
"""


def start(cache, **environment):
    command = [sys.executable, "-c", PROGRAM]
    environment = os.environ | {"FASTWEIGHTS_CACHE": str(cache)} | environment
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
def test_two_processes_build_at_once_after_a_killed_one(tmp_path):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 100\n")
    slow.chmod(0o755)
    cache = tmp_path / "cache"
    killed = start(cache, CXX=str(slow))
    while not list(cache.glob("*build-*/*.cpp")):
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    (folder,) = cache.glob("*build-*")
    os.utime(folder / scratch.MARK, (0, 0))
    both = [start(cache), start(cache)]
    first, second = (process.communicate()[0] for process in both)
    assert first == second != ""
    assert len(list(cache.glob("*.so"))) == 1
    assert not list(cache.glob("*build-*")), "the folder of the killed build is still there"


def tensors_of(shape: Shape, cell: Cell) -> list[Tensor]:
    arguments_of_cell = scan_checks.arguments(cell, shape)
    parts = [*arguments_of_cell.inputs, *arguments_of_cell.state, *(arguments_of_cell.params or ())]
    return [x.requires_grad_() for x in parts]


@pytest.mark.parametrize("lengths", [None, torch.tensor([3, 0])], ids=["whole", "padded"])
@pytest.mark.parametrize("reset", [False, True])
def test_scan_passes_opcheck(reset, lengths):
    cell = Cell.from_function(with_params)
    shape = Shape(2, 5, 2, 4, 3)
    scan_arguments = scan_checks.arguments(cell, shape)
    start = [torch.zeros_like(x, requires_grad=True) for x in scan_arguments.state]
    initial, when = (start, scan_arguments.reset) if reset else ([], None)
    arguments = (cell.key, tensors_of(shape, cell), initial, when, lengths, True)
    torch.library.opcheck(torch.ops.fastweights.scan.default, arguments)


def test_second_derivatives_are_rejected():
    cell = Cell.from_name("delta")
    x = [leaf.requires_grad_() for leaf in sample_inputs(cell, Shape(1, 3, 1, 2, 2))]
    y, _ = scan(cell, cell.Inputs(*x), backend="compiled")
    (first,) = torch.autograd.grad(y.sum(), x[0], create_graph=True)
    with pytest.raises(InputError, match="backend must be 'reference'"):
        torch.autograd.grad(first.sum(), x[0])


def test_backward_pass_stores_one_state_per_chunk():
    cell = Cell.from_name("delta")
    shape = Shape(1, 1024, 2, 64, 64)
    x = [leaf.float().requires_grad_() for leaf in sample_inputs(cell, shape)]
    input_storages, saved = {leaf.untyped_storage().data_ptr() for leaf in x}, {}

    def record_storage(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record_storage, lambda tensor: tensor):
        y, _ = scan(cell, cell.Inputs(*x), backend="compiled")
    states = sum(size for address, size in saved.items() if address not in input_storages) / (
        shape.H * shape.K * shape.V * 4
    )
    C = kernel.chunk(shape.K * shape.V, shape.T)
    assert states <= shape.T / C + C
    del y


def test_results_do_not_depend_on_threads():
    scan_arguments = scan_checks.arguments(Cell.from_function(with_params), Shape(3, 5, 2, 4, 3), torch.float32)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(
                scan_checks.results_and_gradients(Cell.from_function(with_params), "compiled", scan_arguments)
            )
    finally:
        torch.set_num_threads(threads)
    for name, tensor in results[0].items():
        assert torch.equal(tensor, results[1][name])


def test_source_names_the_lines_of_the_cell(capsys):
    assert cli.main(["explain", "delta", "--source"]) == 0
    code = capsys.readouterr().out
    assert re.search(r"// delta\.py:\d+: return W \+ beta \* torch\.outer\(v - W @ k, k\)", code)
    assert "forward_step" in code


@pytest.mark.parametrize("name", Cell.names())
def test_guard_of_a_library_step_holds(name):
    """No global that it reads may change, so that calls need no second check and exported programs stay valid."""
    assert Guard(Cell.from_name(name)).holds()


def test_guard_holds_after_garbage_collection():
    def collect(frame, event, argument):
        if frame.f_code.co_name == "_record":
            gc.collect()
            return collect
        return None

    gc.freeze()  # existing objects, so that a collection takes no time
    before = sys.gettrace()
    sys.settrace(collect)
    try:
        assert Guard(Cell.from_name("delta-lstm")).holds()
    finally:
        sys.settrace(before)
        gc.unfreeze()


@pytest.mark.parametrize("backend", ["reference", "chunkwise", "compiled"])
@pytest.mark.parametrize("T", [1, 5])
def test_tensors_may_have_the_negative_bit(backend, T):
    """Like results of torch.fft; each such call follows one with the same strides."""
    cell, shape = Cell.from_name("delta"), Shape(2, T, 4, 3, 3)
    inputs_of_cell = sample_inputs(cell, shape, torch.float32)
    halves = type(inputs_of_cell)(*(torch.complex(x, -x).conj().imag for x in inputs_of_cell))
    plain = type(inputs_of_cell)(*(torch.view_as_real(torch.complex(x, x))[..., 1] for x in inputs_of_cell))
    assert all(x.is_neg() and x.stride() == y.stride() for x, y in zip(halves, plain, strict=True))
    state = cell.State(torch.zeros(2, 4, 3, 3))
    want, _ = scan(cell, inputs_of_cell, state, backend="reference")
    for inputs in (plain, halves, plain, halves):
        got, _ = scan(cell, inputs, state, backend=backend)
        scan_checks.assert_close({"y": got}, {"y": want.double()}, torch.float32)


SHAPE = Shape(2, 16, 2, 32, 32)
STEPS = SHAPE.B * SHAPE.T * SHAPE.H


def shape_of(cell):
    """A shape with more time steps for states of order three, whose products in chunks need longer sequences."""
    orders = [len(slot.axes.split()) for slot in cell.slots["State"].values() if not slot.axes[:1].isdigit()]
    return SHAPE._replace(T=64) if max(orders, default=0) > 2 else SHAPE


def count(cell, backend, shape):
    """Operations of the forward and of the backward pass, on a device without computation and without kernels."""
    scan_arguments = arguments(cell, shape, torch.float32)
    scan_arguments = tree_map_only(Tensor, lambda x: x.to("meta").requires_grad_(x.is_floating_point()), scan_arguments)
    with FlopCounterMode(display=False) as counter:
        y, _ = scan(cell, scan_arguments.inputs, scan_arguments.state, scan_arguments.params, backend=backend)
        forward = counter.get_total_flops()
        y.sum().backward()
    return forward, counter.get_total_flops() - forward


def count_of_reference(cell, shape):
    """The same for the reference. It is a loop, so that a quarter of the time steps has a quarter of the operations."""
    return [4 * number for number in count(cell, "reference", shape._replace(T=shape.T // 4))]


@pytest.mark.parametrize("name", Cell.names())
def test_backends_count_similar_operations(name):
    """PyTorch counts matrix products and not outer products, so the count of the reference is the lowest."""
    cell = Cell.from_name(name)
    shape = shape_of(cell)
    result = {backend: count(cell, backend, shape) for backend in RUNS_ON[name] if backend != "reference"}
    result["reference"] = count_of_reference(cell, shape)
    for compiled, reference in zip(result["compiled"], result["reference"], strict=True):
        assert reference <= compiled
        # PyTorch does not count products of single numbers: the Kalman filter per number has 23 times as many
        # as products of matrices.
        assert compiled <= 24 * reference or not reference
    memory = sum(
        slot.shape({**cell.example_sizes, "K": 32, "V": 32}) == (32, 32) for slot in cell.slots["State"].values()
    )
    assert result["compiled"][0] >= STEPS * 2 * 2 * 32 * 32 * memory, "a write and a read per matrix"
    assert result["compiled"][0] < result["compiled"][1] < 6 * result["compiled"][0]
    counts = zip(result.get("chunkwise", ()), result["compiled"], result["reference"], strict=False)
    for chunkwise, compiled, reference in counts:
        # PyTorch counts the loop over time in chunkwise as it counts the reference.
        assert min(compiled / 4, reference) <= chunkwise <= 4 * compiled * pairs_per_step(cell)


def pairs_per_step(cell):
    """Chunks multiply all pairs of their steps, which costs more than the memory if it is narrower than a chunk."""
    shapes = [slot.shape({**cell.example_sizes, "K": 32, "V": 32}) for slot in cell.slots["State"].values()]
    narrowest = min(min(shape) if len(shape) > 1 else 1 for shape in shapes if shape)
    return max(1, SHAPE.T / narrowest)


def test_flop_counter_counts_a_call_on_a_cpu():
    B, T, H, K = 2, 9, 2, 8
    q, k, v = (torch.randn(B, T, H, K, requires_grad=True) for _ in range(3))
    with FlopCounterMode(display=False) as counter:
        y, _ = functional.delta_rule(q, k.softmax(-1), v, torch.rand(B, T, H))
        forward = counter.get_total_flops()
        y.sum().backward()
    assert forward >= 3 * 2 * B * T * H * K * K, "W k, the write, and W q"
    assert counter.get_total_flops() >= 3 * forward


@pytest.mark.parametrize("first", ["fastweights", "torch.utils.flop_counter"])
def test_flop_counter_counts_scans_for_either_import_order(first):
    second = {"fastweights": "torch.utils.flop_counter"}.get(first, "fastweights")
    code = (
        f"import {first}, {second}, torch; print(torch.ops.fastweights.scan in torch.utils.flop_counter.flop_registry)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_import_does_not_load_the_flop_counter():
    code = "import sys, fastweights.layers, fastweights.models; print('torch.utils.flop_counter' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


TABLE = re.compile(r"^equal (\d+), refused (\d+), void (\d+), wrong 0, raw 0$", re.M)


def fuzz(script: str, *flags: str) -> list[int]:
    """The numbers of equal, refused and void cells; none may be wrong or raise a raw error."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *flags]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stdout + result.stderr
    return [int(count) for count in TABLE.findall(result.stdout)[0]]


@pytest.mark.slow
def test_random_cells_are_equal_or_refused():
    equal, refused, void = fuzz("fuzz_cells.py", "--number", "12", "--seed", "3")
    assert equal >= 6
    assert equal + refused + void == 12


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "number"), [("chunkwise", 40), ("compiled", 6), ("triton", 4)])
def test_random_affine_cells_are_equal_or_refused(backend, number):
    if backend == "triton":
        pytest.importorskip("triton")
    equal, refused, void = fuzz("fuzz_affine.py", "--backend", backend, "--number", str(number), "--seed", "7")
    assert equal >= number / 2
    assert equal + refused + void == number
