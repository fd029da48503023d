"""Captured values of a step: numbers, functions, modules and tensors, which may change; programs of `torch.export`."""

import os
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

from fastweights import Cell, InputError, explain, inner, scan
from fastweights.cell import examples
from fastweights.compiler.clean_thread import run_in_clean_thread
from fastweights.compiler.specialise import specialisations as forms
from fastweights.compiler.specialise.call_log import log_calls
from fastweights.compiler.specialise.op_log import record_ops
from fastweights.compiler.targets.cpp import cache_folder
from fastweights.signature import Key, Matrix, Rate, Value
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape, sample_inputs
from my_memories import Holder, Scaled

SHAPE = Shape(2, 4, 2, 4, 3)
SIZES = {"K": 4, "V": 3}


class State(NamedTuple):
    W: Matrix


class Inputs(NamedTuple):
    k: Key
    v: Value


def cell_writing(f: Callable[[Tensor], Tensor]) -> Cell:
    """W <- 0.9 W + f(v) k^T."""

    def step(state: State, x: Inputs) -> tuple[State, Value]:
        W = 0.9 * state.W + torch.outer(f(x.v), x.k)
        return State(W), W @ x.k

    return Cell.from_function(step)


def outcome(cell: Cell, backend: str, leaves: list[Tensor]) -> dict[str, Tensor]:
    """Results, and the gradients of the inputs and of other tensors."""
    arguments = scan_checks.arguments(cell, SHAPE, torch.float32)
    inputs = [x.requires_grad_() for x in arguments.inputs]
    y, state = scan(cell, cell.Inputs(*inputs), arguments.state, backend=backend)
    loss = y.square().sum() + sum((n + 1) * x.sum() for n, x in enumerate(state))
    gradients = torch.autograd.grad(loss, [*inputs, *leaves], allow_unused=True, materialize_grads=True)
    return {"y": y, "last": state[0]} | {f"gradient {n}": g for n, g in enumerate(gradients)}


def check(cell: Cell, leaves: list[Tensor] | None = None) -> None:
    """The kernel equals the reference."""
    got, want = (outcome(cell, backend, leaves or []) for backend in ("compiled", "reference"))
    scan_checks.assert_close(got, want, torch.float32)


def with_default(c: float) -> Any:
    class Record(NamedTuple):
        v: Tensor
        scale: float = c

    return Record


def capturing(captured: Any, f: Callable[[Tensor, Any], Tensor]) -> Callable[[Tensor], Tensor]:
    """f with a captured value."""
    return lambda v: f(v, captured)


NUMBERS: dict[str, Callable[[float], Callable[[Tensor], Tensor]]] = {
    "a number": lambda c: lambda v: v * c,
    "a partial": lambda c: partial(torch.mul, other=c),
    "a method": lambda c: Holder(c).times,
    "an object": lambda c: capturing(Holder(c), lambda v, o: v * o.scale),
    "a dictionary": lambda c: capturing({"scale": c}.get, lambda v, get: v * get("scale")),
    "a property": lambda c: capturing(Scaled(c / 2), lambda v, record: v * record.twice),
    "a default": lambda c: capturing(with_default(c), lambda v, record: v * record(v).scale),
    "a default of a keyword": lambda c: keyword(c),
    "an attribute of a function": lambda c: attribute(c),
}


def keyword(c: float) -> Callable[[Tensor], Tensor]:
    def times(v: Tensor, *, scale: float = c) -> Tensor:
        return v * scale

    return times


def attribute(c: float) -> Callable[[Tensor], Tensor]:
    def times(v: Tensor) -> Tensor:
        return v * times.scale

    times.scale = c
    return times


@pytest.mark.parametrize("make", NUMBERS.values(), ids=NUMBERS)
def test_different_numbers_are_different_steps(make):
    """For every source of the number; an equal number gives the same kernel."""
    check(cell_writing(make(2.0)))
    check(cell_writing(make(5.0)))


TENSORS: dict[str, Callable[[Tensor], Callable[[Tensor], Tensor]]] = {
    "a tensor": lambda M: lambda v: M @ v,
    "a builtin that is bound": lambda M: M.mv,
    "a partial": lambda M: partial(torch.mv, M),
    "a module": lambda M: module(M),
    "a list": lambda M: capturing([M], lambda v, captured: captured[0] @ v),
    "an array": lambda M: capturing(M.numpy(), lambda v, captured: torch.from_numpy(captured) @ v),
}


def module(M: Tensor) -> nn.Module:
    linear = nn.Linear(3, 3, bias=False)
    linear.weight = nn.Parameter(M)
    return linear


@pytest.mark.parametrize("make", TENSORS.values(), ids=TENSORS)
def test_captured_tensor_is_read_at_every_call(make):
    M = torch.randn(3, 3)
    cell = cell_writing(make(M))
    check(cell)
    M.mul_(3.0)
    check(cell)
    M.numpy()[0, 0] = 7.0
    check(cell)


def test_two_modules_are_two_steps():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    for linear in (first, second):
        check(cell_writing(linear), list(linear.parameters()))


def test_captured_parameter_may_be_replaced_or_frozen():
    linear = nn.Linear(3, 3)
    cell = cell_writing(linear)
    check(cell, list(linear.parameters()))
    linear.weight = nn.Parameter(torch.randn(3, 3))
    check(cell, list(linear.parameters()))
    linear.requires_grad_(False)
    check(cell)


def test_masks_and_indices_are_compared_at_every_call():
    mask = torch.tensor([True, False, True])
    cell = cell_writing(lambda v: torch.where(mask, v, -v))
    check(cell)
    mask[0] = False
    check(cell)


def test_global_may_be_rebound(monkeypatch):
    cell = cell_writing(lambda v: v * SCALE)
    check(cell)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    check(cell)


SCALE = 2.0


def test_module_inside_a_step_trains():
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    for net, backend in zip(nets, ("auto", "reference"), strict=True):
        cell, optimizer = cell_writing(net), torch.optim.SGD(net.parameters(), lr=0.1)
        inputs = sample_inputs(cell, SHAPE, torch.float32)
        assert explain(cell, inputs).chosen == "compiled"
        for _ in range(5):
            optimizer.zero_grad()
            scan(cell, inputs, backend=backend)[0].square().mean().backward()
            optimizer.step()
    for mine, theirs in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    "transform", [torch.vmap, lambda f: torch.func.grad(lambda v: f(v).sum())], ids=["vmap", "grad"]
)
def test_captured_module_after_a_transform(transform):
    """A tensor that a transform returns is no captured tensor."""
    linear = nn.Linear(3, 3)
    check(cell_writing(lambda v: linear(transform(lambda z: z.sin() * 2)(v))), list(linear.parameters()))


def test_captured_constant_may_be_large():
    large = torch.randn(300, 300)
    check(cell_writing(lambda v: v * (large @ large[0])[:3]))


def test_dropout_compiles_in_evaluation_mode():
    net = nn.Dropout()
    cell = cell_writing(net)
    with pytest.raises(InputError, match=r"random numbers by aten.bernoulli.* write noise as one of the inputs"):
        outcome(cell, "compiled", [])
    net.eval()
    check(cell)


class Reversed(torch.autograd.Function):
    """An identity with another gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


def counter_function() -> Callable[[Tensor], Tensor]:
    calls = []

    def times(v: Tensor) -> Tensor:
        calls.append(v)
        return v * len(calls)

    return times


def changing_function() -> Callable[[Tensor], Tensor]:
    count = torch.zeros(())
    return lambda v: v * count.add_(1)


def depends_on_gradient_mode(v: Tensor) -> Tensor:
    return v if torch.is_grad_enabled() else 2 * v


ONES = torch.ones(3, 3)
REJECTED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "a number of Python's chance": (lambda v: v * random.random(), "something else when it is called again"),
    "a counter": (counter_function(), "something else when it is called again"),
    "a number taken out of an argument": (lambda v: v * v.tolist()[0], "taken out of a tensor by tolist"),
    "an array of an argument": (lambda v: v * float(numpy.sum(v.numpy(force=True))), "taken out of a tensor by numpy"),
    "a tensor that is changed": (changing_function(), "changed that the step does not own"),
    "a gradient of its own": (Reversed.apply, "torch.autograd.Function"),
    "half precision inside": (lambda v: v.half().float(), "numbers of torch.float16"),
    "complex numbers": (lambda v: torch.fft.fft(v).real, "numbers of torch.complex64"),
    "a weight that vmap hides": (lambda v: torch.vmap(lambda r: (r * v).sum())(ONES), "from elsewhere"),
}


@pytest.mark.parametrize(("f", "words"), REJECTED.values(), ids=REJECTED)
def test_explain_names_the_reason_against_a_kernel(f, words):
    cell = cell_writing(f)
    with pytest.raises(InputError, match=words):
        outcome(cell, "compiled", [])
    assert explain(cell, sample_inputs(cell, SHAPE)).chosen == "reference"


def test_step_may_depend_on_the_gradient_mode():
    cell = cell_writing(partial(depends_on_gradient_mode))
    check(cell)
    inputs = sample_inputs(cell, SHAPE, torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(scan(cell, inputs)[0], scan(cell, inputs, backend="reference")[0])


def test_explain_has_no_side_effects():
    counter, net = torch.zeros(()), nn.Dropout()
    before = torch.get_rng_state()
    cell = cell_writing(lambda v: net(v) * counter.add_(1))
    explain(cell, sample_inputs(cell, SHAPE))
    assert counter == 1, "the check of the signature runs a step once"
    assert torch.equal(torch.get_rng_state(), before)


def test_number_that_changes_at_every_call_stops_compilation(monkeypatch):
    monkeypatch.setattr(forms, "MOST", 2)
    holder = Holder(2.0)
    cell = cell_writing(holder.times)
    for holder.scale in (2.0, 5.0):
        check(cell)
    holder.scale = 6.0
    with pytest.raises(InputError, match=r"changes from call to call, 2 times so far.* as a tensor"):
        outcome(cell, "compiled", [])
    torch.testing.assert_close(outcome(cell, "auto", []), outcome(cell, "reference", []))
    holder.scale = 2.0
    check(cell)


def test_equal_steps_have_equal_texts():
    """For every way to write a step in Python; different steps have different texts."""
    texts = {}
    for name, make in NUMBERS.items():
        texts[name] = [record_ops(cell_writing(make(c)), SIZES, torch.float32).text for c in (2.0, 5.0)]
    (two, five) = texts["a number"]
    assert two != five
    assert all(pair == [two, five] for pair in texts.values()), texts


def test_call_log_distinguishes_numbers_that_are_equal_in_python():
    makers = [lambda c: lambda v: torch.add(v, c), lambda c: lambda v: v + torch.full((3,), c)]
    for make in makers:
        cells = [cell_writing(make(c)) for c in (1, 1.0, 0.0, -0.0, float("nan"))]
        keys = [log_calls(cell, examples(cell, SIZES, torch.float32)).key for cell in cells]
        assert len(set(keys)) == len(keys)


def test_failed_build_is_retried(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path))
    monkeypatch.setattr(cache_folder, "candidate_folders", lambda: iter(()))
    cell = cell_writing(lambda v: v * 2.0)
    inputs = sample_inputs(cell, SHAPE, torch.float32)

    def reason():
        scan(cell, inputs)
        return explain(cell, inputs).reasons["compiled"]

    assert "there is no folder for compiled kernels" in reason()
    monkeypatch.undo()
    assert "there is no folder for compiled kernels" in reason(), "the failure is cached for a while"
    monkeypatch.setattr(forms, "PAUSE", -1.0)
    assert reason() == "runs"


def test_threads_may_trace_concurrently():
    """PyTorch traces one function at a time: the property of a cell does not depend on other threads."""
    cells = [Cell.from_name(name) for name in ("delta-rnn", "srwm", "recurrent-delta-net", "linear-attention")] * 2
    reasons: list[str] = []
    begin = threading.Barrier(len(cells))

    def append_reason(cell: Cell) -> None:
        begin.wait()
        reasons.append(forms.why_never(cell.key, tuple(cell.example_sizes.items()), "cpu"))

    threads = [threading.Thread(target=append_reason, args=(cell,)) for cell in cells]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reasons == [""] * len(cells)


def test_threads_may_compile_new_cells_concurrently():
    """Each thread gets the result of its cell, and no failure of another thread is cached."""
    nets = [nn.Linear(3, 3) for _ in range(2)]
    steps = [*nets, *(lambda v, c=c: torch.func.grad(lambda z: (z.sin() * c).sum())(v) for c in (2.0, 5.0))]
    cells = [cell_writing(partial(step)) for step in steps]
    got: dict[int, dict[str, Tensor]] = {}
    begin = threading.Barrier(len(cells))

    def run(n: int) -> None:
        begin.wait()
        got[n] = outcome(cells[n], "compiled", [])

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(cells))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, cell in enumerate(cells):
        scan_checks.assert_close(got[n], outcome(cell, "reference", []), torch.float32)
        assert explain(cell, sample_inputs(cell, SHAPE, torch.float32)).chosen == "compiled"


def test_process_may_fork_while_another_thread_traces():
    acquired, done = threading.Event(), threading.Event()
    assert run_in_clean_thread(threading.get_ident) != threading.get_ident(), (
        "a thread that a forked child does not have"
    )

    def hold_lock() -> None:
        with forms.LOCK.own:
            acquired.set()
            done.wait()

    thread = threading.Thread(target=hold_lock)
    thread.start()
    acquired.wait()
    cell = cell_writing(lambda v: v * 2.0)
    child = os.fork()
    if child == 0:
        os._exit(0 if explain(cell, sample_inputs(cell, SHAPE, torch.float32)).chosen == "compiled" else 1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_torch_compile_uses_the_reference_for_values_that_may_change():
    net = nn.Linear(3, 3)
    cell = cell_writing(net)
    inputs = sample_inputs(cell, SHAPE, torch.float32)
    run = torch.compile(lambda *x: scan(cell, cell.Inputs(*x))[0], fullgraph=True, backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(run(*inputs), scan(cell, inputs, backend="reference")[0])
        with torch.no_grad():
            net.weight.mul_(2.0)
    assert "may change" in forms.why_never(cell.key, tuple(cell.example_sizes.items()), "cpu")


# A warning of PyTorch on the first use of its forward-mode derivatives.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
CONSTANT = torch.tensor(0.5)


def grads(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    return W - beta * grad(lambda W: CONSTANT * ((v - W @ k) ** 2).sum())(W)


def grads_and_values(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    slope, loss = grad_and_value(lambda W: ((v - W @ k) ** 2).sum())(W)
    return W - beta * slope / (1 + loss)


def vjps(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    y, back = vjp(lambda W: W @ k, W)
    return W + beta * back(v - y)[0]


def jvps(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    _, y = jvp(lambda W: W @ k, (W,), (W,))
    return W + beta * torch.outer(v - y, k)


def vmaps(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    return W + beta * vmap(lambda w, v: (v - w @ k) * k)(W, v)


def grads_under_vmap(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    return W - beta * vmap(grad(lambda w, v: (v - w @ k) ** 2))(W, v)


def jacobians(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    return W + beta * (torch.outer(v, k) - jacrev(lambda k: W @ k)(k)) + 0.1 * jacfwd(lambda k: W @ k.tanh())(k)


def hessians(W: Matrix, k: Key, v: Value, beta: Rate) -> Matrix:
    return W - beta * torch.outer(W @ k - v, k) @ hessian(lambda k: (k**4).sum() / 12)(k)


FUNCTIONS = [grads, grads_and_values, vjps, jvps, vmaps, grads_under_vmap, jacobians, hessians]
CELLS = [*map(Cell.from_function, FUNCTIONS), Cell.from_loss(inner.l2, retention=inner.scalar_decay)]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_rule_with_transforms_is_exported(cell):
    scan_checks.check_exports(cell, "reference")


def test_rule_with_transforms_is_exported_in_strict_mode():
    cell = Cell.from_function(grads_and_values)
    a = scan_checks.arguments(cell, scan_checks.UNROLLED, torch.float32)

    class Module(torch.nn.Module):
        def forward(self, *tensors):
            return scan(cell, cell.Inputs(*tensors), a.state, a.params, a.reset, backend="reference")[0]

    program = torch.export.export(Module(), tuple(a.inputs), strict=True).module()
    scan_checks.assert_close({"y": program(*a.inputs)}, {"y": Module()(*a.inputs)}, torch.float32)
