"""Signatures of steps are checked before a scan runs."""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from fastweights import Cell, InputError, scan
from fastweights.layers import FastWeight
from fastweights.signature import Key, Matrix, Output, TensorSpec, Value
from fastweights.testing import run_checks
from fastweights.testing.samples import Shape, sample_inputs

EQUAL, APART = Shape(2, 3, 2, 4, 4), Shape(2, 3, 2, 4, 3)


def transposed(W: Matrix, k: Key, v: Value) -> Matrix:
    return W + torch.outer(k, v)


def turned(W: Matrix, k: Key, v: Value) -> Matrix:
    return (W + torch.outer(v, k)).T


def summed(W: Matrix, k: Key, v: Value) -> Matrix:
    return (W + torch.outer(v, k)).sum(0, keepdim=True)


def in_place(W: Matrix, k: Key, v: Value) -> Matrix:
    W += torch.outer(v, k)
    return W


def mixed(W: Matrix, k: Key, v: Value) -> Matrix:
    return W + torch.outer(v, v)


class State(NamedTuple):
    h: Output


class Inputs(NamedTuple):
    v: Value


def widened(state: State, x: Inputs) -> tuple[State, Value]:
    h = state.h + x.v
    return State(h), h.half()


def without_state(state: State, x: Inputs) -> tuple[State, Value]:
    return x.v, x.v


def scalar(state: State, x: Inputs) -> tuple[State, Value]:
    return State(state.h + x.v), x.v.sum()


BROKEN = {
    transposed: (EQUAL, r"at K=4, V=8, got .* \(test_signature.py:\d+: return W \+ torch.outer\(k, v\)\).*one letter"),
    turned: (EQUAL, r"at K=4, V=8, got .*W @ x.q\).*one letter"),
    mixed: (EQUAL, r"return W \+ torch.outer\(v, v\)\).*one letter"),
    summed: (APART, r"the new W of summed must be \[V, K\] with K=4, V=3, got \[1, 4\]"),
    in_place: (APART, r"does not modify its arguments, got one that changes W\. .*W = W \+"),
    widened: (APART, r"y of widened must be float32 like the state, got float16. Cast"),
    without_state: (APART, r"a step that returns \(State\(\.\.\.\), y\)"),
    scalar: (APART, r"y of scalar must be \[V\] with V=3, got \[\]"),
}


@pytest.mark.parametrize("backend", ["auto", "compiled", "reference"])
@pytest.mark.parametrize(
    ("step", "shape", "words"), [(s, *rest) for s, rest in BROKEN.items()], ids=lambda x: getattr(x, "__name__", "")
)
def test_steps_that_break_their_signature_are_refused_in_one_line(step, shape, words, backend):
    cell = Cell.from_function(step)
    with pytest.raises(InputError, match=words) as error:
        scan(cell, sample_inputs(cell, shape, torch.float32), backend=backend)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("step", BROKEN, ids=lambda f: f.__name__)
def test_check_reports_a_broken_signature_once(step):
    ((name, problem),) = run_checks(Cell.from_function(step))
    assert (name, bool(problem)) == ("keeps its signature", True)


def test_a_signature_is_checked_once_per_kind_of_call(monkeypatch):
    calls = []

    def counting(state: State, x: Inputs) -> tuple[State, Value]:
        calls.append(len(x.v))
        return State(state.h + x.v), state.h

    cell = Cell.from_function(counting)
    for T in (2, 3, 2, 3):
        before = len(calls)
        scan(cell, sample_inputs(cell, Shape(1, T, 1, 4, 3)), backend="reference")
        assert (len(calls) - before == T) == (before > 0)


def test_steps_with_fixed_sizes_are_accepted():
    linear = nn.Linear(4, 4).double()
    tied = {
        "a module": lambda W, k, v: W + torch.outer(linear(v), k),
        "a number": lambda W, k, v: W + torch.outer(v.reshape(4), k),
    }
    for f in tied.values():
        f.__annotations__ = {"W": Matrix, "k": Key, "v": Value}
        cell = Cell.from_function(f)
        scan(cell, sample_inputs(cell, EQUAL), backend="reference")


def test_steps_that_need_divisible_sizes_are_accepted():
    def halves(state: State, x: Inputs) -> tuple[State, Value]:
        first, second = x.v.chunk(2)
        return State(state.h + x.v), torch.cat([second, first])

    cell = Cell.from_function(halves)
    scan(cell, sample_inputs(cell, EQUAL), backend="reference")


def test_a_rule_may_use_any_parameter_names():
    def rule(M: Matrix, key: Key, value: Value, rate: float = 0.5) -> Matrix:
        return M + rate * torch.outer(value, key)

    cell = Cell.from_function(rule)
    assert cell.Inputs._fields == ("q", "key", "value")
    assert scan(cell, sample_inputs(cell, APART), backend="reference")[1].W.shape == (2, 2, 3, 4)


def bare(W, k, v):
    return W


def half(W: Matrix, k, v: Value):
    return W


def of_a_vector(z: Annotated[Tensor, TensorSpec("K", "memory")], k: Key) -> Any:
    return z + k


def queried(W: Matrix, q: Key, v: Value) -> Matrix:
    return W


def unresolved(W: "Unknown", k: Key) -> Matrix:  # noqa: F821
    return W


class Plain(NamedTuple):
    W: Tensor


def plain(state: Plain, x: Inputs) -> tuple[Plain, Value]:
    return state, x.v


@dataclass
class Frozen:
    by: float

    def __call__(self, W: Matrix, k: Key) -> Matrix:
        return self.by * W


def misspelt(W: Matrix, k: Key, beta: Annotated[Tensor, TensorSpec("", "rat")]) -> Matrix:
    return W


class Nothing(NamedTuple):
    pass


def forgetful(state: Nothing, x: Inputs) -> tuple[Nothing, Value]:
    return state, x.v


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (bare, r"annotated with axes and roles, got bare\. Annotate it as a rule \(W: Matrix"),
        (half, r"k must be annotated with its axes"),
        (of_a_vector, r"z must be annotated as a Matrix, got axes 'K'"),
        (queried, r"q must be left out"),
        (unresolved, r"annotations can be read, got .*unresolved.*'Unknown' is not defined"),
        (plain, r"W must be annotated with its axes, got <class 'torch.Tensor'>"),
        (torch.outer, r"annotations can be read, got <built-in"),
        (3, r"cell must be a function, a Cell or a name, got int"),
        (lambda: None, r"annotated with axes and roles"),
        (Frozen(2), r"got an unhashable Frozen\. Freeze it"),
        (misspelt, r"role of beta must be one of .*, got 'rat'\. Did you mean 'rate'"),
        (forgetful, r"State must be a record with at least one tensor, got none"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_invalid_cells_are_refused(function, words):
    with pytest.raises(InputError, match=words):
        Cell.from_function(function)


class Named(NamedTuple):
    num_heads: Annotated[Tensor, TensorSpec("", "constant")]


def taken(state: State, x: Inputs, params: Named) -> tuple[State, Value]:
    return state, params.num_heads * x.v


class Halving(NamedTuple):
    eta: Annotated[Tensor, TensorSpec("", "constant")]


def halving(state: State, x: Inputs, params: Halving) -> tuple[State, Value]:
    return State(params.eta * state.h), x.v


class Kind(NamedTuple):
    to: Output


def moved(state: Kind, x: Inputs) -> tuple[Kind, Value]:
    return state, x.v


@pytest.mark.parametrize(
    ("step", "options", "words"),
    [
        (
            taken,
            {"constants": {"num_heads": 1.0}},
            "Params of taken must be a record without names of module attributes, got 'num_heads'",
        ),
        (moved, {"initial_state": "learned"}, "Kind must be a record without names of module attributes, got 'to'"),
        (halving, {}, "constants must be given for eta, got none"),
        (halving, {"constants": {"eta": 0.5, "etta": 0.5}}, "constants must be given for eta, got eta, etta"),
        (widened, {"constants": {"eta": 0.5}}, "constants must be left out for widened, which has none, got eta"),
        (widened, {"sizes": {"N": 3}}, "sizes must be left out for widened, which has no letters but K and V, got N"),
    ],
)
def test_invalid_options_of_a_layer_are_refused(step, options, words):
    with pytest.raises(InputError, match=words):
        FastWeight(16, 4, step, **options)


class Slots(NamedTuple):
    S: Annotated[Tensor, TensorSpec("N K", "memory")]


class Keyed(NamedTuple):
    k: Key


def slotted(state: Slots, x: Keyed) -> tuple[Slots, Key]:
    S = 0.5 * state.S + x.k
    return Slots(S), S.mean(0)


def test_sizes_may_depend_on_the_state_only():
    cell = Cell.from_function(slotted)
    inputs = Keyed(torch.randn(1, 2, 1, 3))
    with pytest.raises(InputError, match="state must be given, since only the state has the size N, got None"):
        scan(cell, inputs)
    state = Slots(torch.zeros(1, 1, 5, 3))
    assert scan(cell, inputs, state, backend="reference")[1].S.shape == (1, 1, 5, 3)
    assert not any(problem for _, problem in run_checks(cell))
    layer = FastWeight(8, 2, cell, sizes={"N": 6}, backend="reference")
    assert layer(torch.randn(2, 3, 8))[1].S.shape == (2, 2, 6, 4)
    with pytest.raises(InputError, match="N"):
        FastWeight(8, 2, cell, backend="reference")(torch.randn(2, 3, 8))


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(0.5))

    def forward(self, state: State, x: Inputs) -> tuple[State, Value]:
        h = state.h + self.rate * x.v
        return State(h), h


def test_a_module_can_be_a_step():
    step = Step()
    inputs = Inputs(torch.randn(1, 4, 2, 3))
    for backend in ("auto", "reference"):
        y, _ = scan(step, inputs, backend=backend)
        torch.testing.assert_close(y, 0.5 * inputs.v.cumsum(1))
        (gradient,) = torch.autograd.grad(y.sum(), [step.rate])
        torch.testing.assert_close(gradient, inputs.v.cumsum(1).sum())
