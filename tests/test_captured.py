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
from fastweights.compiler.clean_thread import alone
from fastweights.compiler.specialise import specialisations as forms
from fastweights.compiler.specialise.call_log import log_calls
from fastweights.compiler.specialise.op_log import record_ops
from fastweights.compiler.targets.cpp import cache_folder as place
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


def writing(f: Callable[[Tensor], Tensor]) -> Cell:
    """W <- 0.9 W + f(v) k^T."""

    def step(state: State, x: Inputs) -> tuple[State, Value]:
        W = 0.9 * state.W + torch.outer(f(x.v), x.k)
        return State(W), W @ x.k

    return Cell.from_function(step)


def outcome(cell: Cell, backend: str, leaves: list[Tensor]) -> dict[str, Tensor]:
    """Results, and the gradients of the inputs and of other tensors."""
    given = scan_checks.arguments(cell, SHAPE, torch.float32)
    inputs = [x.requires_grad_() for x in given.inputs]
    y, state = scan(cell, cell.Inputs(*inputs), given.state, backend=backend)
    loss = y.square().sum() + sum((n + 1) * x.sum() for n, x in enumerate(state))
    gradients = torch.autograd.grad(loss, [*inputs, *leaves], allow_unused=True, materialize_grads=True)
    return {"y": y, "last": state[0]} | {f"gradient {n}": g for n, g in enumerate(gradients)}


def check(cell: Cell, leaves: list[Tensor] | None = None) -> None:
    """The kernel does what the reference does."""
    got, want = (outcome(cell, backend, leaves or []) for backend in ("compiled", "reference"))
    scan_checks.assert_close(got, want, torch.float32)


def with_default(c: float) -> Any:
    class Record(NamedTuple):
        v: Tensor
        scale: float = c

    return Record


def holding(held: Any, f: Callable[[Tensor, Any], Tensor]) -> Callable[[Tensor], Tensor]:
    """f, closed over something."""
    return lambda v: f(v, held)


NUMBERS: dict[str, Callable[[float], Callable[[Tensor], Tensor]]] = {
    "a number": lambda c: lambda v: v * c,
    "a partial": lambda c: partial(torch.mul, other=c),
    "a method": lambda c: Holder(c).times,
    "an object": lambda c: holding(Holder(c), lambda v, o: v * o.scale),
    "a dictionary": lambda c: holding({"scale": c}.get, lambda v, get: v * get("scale")),
    "a property": lambda c: holding(Scaled(c / 2), lambda v, record: v * record.twice),
    "a default": lambda c: holding(with_default(c), lambda v, record: v * record(v).scale),
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
def test_another_number_is_another_step(make):
    """Wherever it comes from; the same number is the same kernel."""
    check(writing(make(2.0)))
    check(writing(make(5.0)))


TENSORS: dict[str, Callable[[Tensor], Callable[[Tensor], Tensor]]] = {
    "a tensor": lambda M: lambda v: M @ v,
    "a builtin that is bound": lambda M: M.mv,
    "a partial": lambda M: partial(torch.mv, M),
    "a module": lambda M: module(M),
    "a list": lambda M: holding([M], lambda v, held: held[0] @ v),
    "an array": lambda M: holding(M.numpy(), lambda v, held: torch.from_numpy(held) @ v),
}


def module(M: Tensor) -> nn.Module:
    linear = nn.Linear(3, 3, bias=False)
    linear.weight = nn.Parameter(M)
    return linear


@pytest.mark.parametrize("make", TENSORS.values(), ids=TENSORS)
def test_a_tensor_is_read_at_every_call(make):
    M = torch.randn(3, 3)
    cell = writing(make(M))
    check(cell)
    M.mul_(3.0)
    check(cell)
    M.numpy()[0, 0] = 7.0
    check(cell)


def test_two_modules_are_two_steps():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    for linear in (first, second):
        check(writing(linear), list(linear.parameters()))


def test_a_parameter_that_is_replaced_or_frozen():
    linear = nn.Linear(3, 3)
    cell = writing(linear)
    check(cell, list(linear.parameters()))
    linear.weight = nn.Parameter(torch.randn(3, 3))
    check(cell, list(linear.parameters()))
    linear.requires_grad_(False)
    check(cell)


def test_masks_and_indices_are_compared_at_every_call():
    mask = torch.tensor([True, False, True])
    cell = writing(lambda v: torch.where(mask, v, -v))
    check(cell)
    mask[0] = False
    check(cell)


def test_a_name_that_means_something_else(monkeypatch):
    cell = writing(lambda v: v * SCALE)
    check(cell)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    check(cell)


SCALE = 2.0


def test_a_module_inside_a_step_trains():
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    for net, backend in zip(nets, ("auto", "reference"), strict=True):
        cell, optimizer = writing(net), torch.optim.SGD(net.parameters(), lr=0.1)
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
def test_a_module_behind_a_transform(transform):
    """What a transform returns is no tensor from elsewhere."""
    linear = nn.Linear(3, 3)
    check(writing(lambda v: linear(transform(lambda z: z.sin() * 2)(v))), list(linear.parameters()))


def test_a_constant_too_large_for_the_source():
    big = torch.randn(300, 300)
    check(writing(lambda v: v * (big @ big[0])[:3]))


def test_dropout_compiles_when_it_is_off():
    net = nn.Dropout()
    cell = writing(net)
    with pytest.raises(InputError, match=r"random numbers by aten.bernoulli.* write noise as one of the inputs"):
        outcome(cell, "compiled", [])
    net.eval()
    check(cell)


class Reversed(torch.autograd.Function):
    """An identity, but for its gradient."""

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


def counted() -> Callable[[Tensor], Tensor]:
    calls = []

    def times(v: Tensor) -> Tensor:
        calls.append(v)
        return v * len(calls)

    return times


def changed() -> Callable[[Tensor], Tensor]:
    count = torch.zeros(())
    return lambda v: v * count.add_(1)


def sometimes(v: Tensor) -> Tensor:
    return v if torch.is_grad_enabled() else 2 * v


ONES = torch.ones(3, 3)
REFUSED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "a number of Python's chance": (lambda v: v * random.random(), "something else when it is called again"),
    "a counter": (counted(), "something else when it is called again"),
    "a number taken out of an argument": (lambda v: v * v.tolist()[0], "taken out of a tensor by tolist"),
    "an array of an argument": (lambda v: v * float(numpy.sum(v.numpy(force=True))), "taken out of a tensor by numpy"),
    "a tensor that is changed": (changed(), "changed that the step does not own"),
    "a gradient of its own": (Reversed.apply, "torch.autograd.Function"),
    "half precision inside": (lambda v: v.half().float(), "numbers of torch.float16"),
    "complex numbers": (lambda v: torch.fft.fft(v).real, "numbers of torch.complex64"),
    "a weight that vmap hides": (lambda v: torch.vmap(lambda r: (r * v).sum())(ONES), "from elsewhere"),
}


@pytest.mark.parametrize(("f", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_a_kernel_is_told(f, words):
    cell = writing(f)
    with pytest.raises(InputError, match=words):
        outcome(cell, "compiled", [])
    assert explain(cell, sample_inputs(cell, SHAPE)).chosen == "reference"


def test_a_step_that_depends_on_whether_gradients_are_wanted():
    cell = writing(partial(sometimes))
    check(cell)
    inputs = sample_inputs(cell, SHAPE, torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(scan(cell, inputs)[0], scan(cell, inputs, backend="reference")[0])


def test_to_look_changes_nothing():
    counter, net = torch.zeros(()), nn.Dropout()
    before = torch.get_rng_state()
    cell = writing(lambda v: net(v) * counter.add_(1))
    explain(cell, sample_inputs(cell, SHAPE))
    assert counter == 1, "the check of the signature runs a step once"
    assert torch.equal(torch.get_rng_state(), before)


def test_a_number_that_moves_at_every_call_stops_building(monkeypatch):
    monkeypatch.setattr(forms, "MOST", 2)
    holder = Holder(2.0)
    cell = writing(holder.times)
    for holder.scale in (2.0, 5.0):
        check(cell)
    holder.scale = 6.0
    with pytest.raises(InputError, match=r"changes from call to call, 2 times so far.* as a tensor"):
        outcome(cell, "compiled", [])
    torch.testing.assert_close(outcome(cell, "auto", []), outcome(cell, "reference", []))
    holder.scale = 2.0
    check(cell)


def test_what_is_the_same_step_is_written_down_alike():
    """Whatever Python it is made of; and what is not, is not."""
    texts = {}
    for name, make in NUMBERS.items():
        texts[name] = [record_ops(writing(make(c)), SIZES, torch.float32).text for c in (2.0, 5.0)]
    (two, five) = texts["a number"]
    assert two != five
    assert all(pair == [two, five] for pair in texts.values()), texts


def test_calls_tell_numbers_apart_that_python_calls_equal():
    makers = [lambda c: lambda v: torch.add(v, c), lambda c: lambda v: v + torch.full((3,), c)]
    for make in makers:
        cells = [writing(make(c)) for c in (1, 1.0, 0.0, -0.0, float("nan"))]
        keys = [log_calls(cell, examples(cell, SIZES, torch.float32)).key for cell in cells]
        assert len(set(keys)) == len(keys)


def test_a_build_that_failed_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path))
    monkeypatch.setattr(place, "places", lambda: iter(()))
    cell = writing(lambda v: v * 2.0)
    inputs = sample_inputs(cell, SHAPE, torch.float32)

    def reason():
        scan(cell, inputs)
        return explain(cell, inputs).reasons["compiled"]

    assert "there is no folder for compiled kernels" in reason()
    monkeypatch.undo()
    assert "there is no folder for compiled kernels" in reason(), "not at every call"
    monkeypatch.setattr(forms, "PAUSE", -1.0)
    assert reason() == "runs"


def test_threads_that_trace_at_once():
    """PyTorch traces one function at a time: nothing that passes is taken for what a cell is."""
    cells = [Cell.from_name(name) for name in ("delta-rnn", "srwm", "recurrent-delta-net", "linear-attention")] * 2
    reasons: list[str] = []
    begin = threading.Barrier(len(cells))

    def ask(cell: Cell) -> None:
        begin.wait()
        reasons.append(forms.why_never(cell.key, tuple(cell.example_sizes.items()), "cpu"))

    threads = [threading.Thread(target=ask, args=(cell,)) for cell in cells]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reasons == [""] * len(cells)


def test_threads_that_compile_new_cells_at_once():
    """Each gets the answer of its own cell, and no failure is kept that was another thread's."""
    nets = [nn.Linear(3, 3) for _ in range(2)]
    steps = [*nets, *(lambda v, c=c: torch.func.grad(lambda z: (z.sin() * c).sum())(v) for c in (2.0, 5.0))]
    cells = [writing(partial(step)) for step in steps]
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


def test_a_fork_while_another_thread_traces():
    held, done = threading.Event(), threading.Event()
    assert alone(threading.get_ident) != threading.get_ident(), "a thread that stays, and that a child does not have"

    def hold() -> None:
        with forms.LOCK.own:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    cell = writing(lambda v: v * 2.0)
    child = os.fork()
    if child == 0:
        os._exit(0 if explain(cell, sample_inputs(cell, SHAPE, torch.float32)).chosen == "compiled" else 1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_torch_compile_takes_the_reference_where_it_could_not_see_a_change():
    net = nn.Linear(3, 3)
    cell = writing(net)
    inputs = sample_inputs(cell, SHAPE, torch.float32)
    run = torch.compile(lambda *x: scan(cell, cell.Inputs(*x))[0], fullgraph=True, backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(run(*inputs), scan(cell, inputs, backend="reference")[0])
        with torch.no_grad():
            net.weight.mul_(2.0)
    assert "may change" in forms.why_never(cell.key, tuple(cell.example_sizes.items()), "cpu")


# PyTorch's own, of its derivatives forwards, when they are first used.
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
CELLS = [*map(Cell.from_function, FUNCTIONS), Cell.from_loss(inner.l2, retention=inner.fade)]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_rule_with_transforms_inside_is_exported(cell):
    scan_checks.check_exports(cell, "reference")


def test_it_is_exported_in_strict_mode_too():
    cell = Cell.from_function(grads_and_values)
    a = scan_checks.arguments(cell, scan_checks.UNROLLED, torch.float32)

    class Module(torch.nn.Module):
        def forward(self, *tensors):
            return scan(cell, cell.Inputs(*tensors), a.state, a.params, a.reset, backend="reference")[0]

    program = torch.export.export(Module(), tuple(a.inputs), strict=True).module()
    scan_checks.assert_close({"y": program(*a.inputs)}, {"y": Module()(*a.inputs)}, torch.float32)
