"""`state_out` receives the last state of a scan, and may be its initial state."""

import pytest
import torch

import fastweights.backends.compiled as compiled
from fastweights import Cell, functional, scan
from fastweights.core.errors import InputError
from fastweights.dispatch import WATCHERS
from fastweights.signature import Key, Matrix, Value
from fastweights.testing.samples import Shape
from fastweights.testing.scan_checks import arguments

DELTA = Cell.from_name("gated-delta")
STEP = Shape(2, 1, 3, 5, 4)


@pytest.fixture
def call():
    return arguments(DELTA, STEP, torch.float32)._replace(reset=None)


def error_message(call, out, grad=False):
    with pytest.raises(InputError) as error, torch.set_grad_enabled(grad):
        scan(DELTA, *call, state_out=out)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_gradients_are_rejected(call):
    inputs = DELTA.Inputs(*(x.clone().requires_grad_() for x in call.inputs))
    assert "None where gradients are needed" in error_message(call._replace(inputs=inputs), call.state, grad=True)
    trainable = DELTA.State(call.state.W.clone().requires_grad_())
    assert "None where gradients are needed" in error_message(call._replace(state=trainable), trainable, grad=True)
    scan(DELTA, *call, state_out=DELTA.State(call.state.W.clone()))  # a cached plan is checked, too
    assert "None where gradients are needed" in error_message(call, trainable, grad=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # in the import of torch.func.jvp
def test_transforms_are_rejected(call):
    def run(q):
        return scan(DELTA, call.inputs._replace(q=q), call.state, state_out=call.state)[0].sum()

    for transformed in (torch.func.grad(run), lambda q: torch.func.jvp(run, (q,), (q,))):
        with pytest.raises(InputError, match="state_out must be None"):
            transformed(call.inputs.q)


def test_overlapping_memory_is_rejected(call):
    W = call.state.W
    storage = torch.zeros(2 * W.numel())
    first, shifted = storage[: W.numel()].view_as(W), storage[8 : 8 + W.numel()].view_as(W)
    assert "separate from all other arguments" in error_message(
        call._replace(state=DELTA.State(first)), DELTA.State(shifted)
    )
    q = W.flatten()[: call.inputs.q.numel()].view_as(call.inputs.q)
    overlapping = call._replace(inputs=call.inputs._replace(q=q))
    assert "separate from all other arguments" in error_message(overlapping, call.state)
    cell = Cell.from_name("delta-rnn")
    a = arguments(cell, Shape(1, 1, 2, 4, 4), torch.float32)
    with pytest.raises(InputError, match="separate from all other arguments"):
        scan(cell, *a, state_out=a.state._replace(R=a.state.W))


def test_adjacent_parts_of_one_tensor_are_accepted(call):
    """As for the states of several layers in one tensor."""
    storage = torch.stack([call.state.W, call.state.W])
    y, state = scan(DELTA, *call)
    before, out = (DELTA.State(part) for part in storage)
    assert torch.equal(scan(DELTA, *call._replace(state=before), state_out=out)[0], y)
    assert torch.equal(storage[1], state.W)
    assert torch.equal(storage[0], call.state.W)


def test_unsuitable_state_out_is_rejected(call):
    W = call.state.W
    assert "contiguous" in error_message(call, DELTA.State(W.mT.contiguous().mT))
    assert "contiguous" in error_message(call, DELTA.State(torch.zeros(1, 1, 1, 1).expand(W.shape)))
    assert "of torch.float32" in error_message(call, DELTA.State(W.double()))
    assert "[B, H, V, K]" in error_message(call, DELTA.State(W[:1]))
    assert "MemoryState" in error_message(call, W)


def test_autograd_detects_the_change_of_a_saved_state(call):
    weight = torch.ones_like(call.state.W, requires_grad=True)
    loss = (weight * call.state.W).sum()
    with torch.no_grad():
        scan(DELTA, *call, state_out=call.state)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_initial_state_of_none_is_zero(call):
    y, state = scan(DELTA, call.inputs)
    out = DELTA.State(torch.full_like(state.W, float("nan")))
    assert torch.equal(scan(DELTA, call.inputs, state_out=out)[0], y)
    assert torch.equal(out.W, state.W)


def test_torch_compile_updates_in_place(call):
    def run(x, state):
        return scan(DELTA, x, state, state_out=state)[0]

    y, state = scan(DELTA, *call)
    copy = DELTA.State(call.state.W.clone())
    with torch.no_grad():
        got = torch.compile(run, fullgraph=True, backend="eager")(call.inputs, copy)
    torch.testing.assert_close(got, y)
    torch.testing.assert_close(copy.W, state.W)


def test_state_is_float32_for_inputs_in_half_precision(call):
    half = DELTA.Inputs(*(x.bfloat16() for x in call.inputs))
    y, state = scan(DELTA, half, call.state)
    in_place, out = scan(DELTA, half, call.state, state_out=call.state)
    assert in_place.dtype == torch.bfloat16
    assert torch.equal(in_place, y)
    assert out.W.dtype == torch.float32
    assert torch.equal(out.W, state.W)


def test_functional_has_state_out():
    q, k, v = torch.randn(3, 2, 1, 4, 8).unbind()
    g, beta, S = -torch.rand(2, 1, 4), torch.rand(2, 1, 4), torch.randn(2, 4, 8, 8)
    o, last = functional.gated_delta_rule(q, k, v, g, beta, initial_state=S, output_final_state=True)
    in_place, out = functional.gated_delta_rule(q, k, v, g, beta, initial_state=S, state_out=S)
    assert out is S
    assert torch.equal(in_place, o)
    assert torch.equal(S, last)


@pytest.fixture
def checked_calls(monkeypatch):
    """The calls with a full check of their arguments."""
    calls, run = [], compiled.run
    monkeypatch.setattr(compiled, "run", lambda problem: calls.append(problem) or run(problem))
    return calls


def test_similar_calls_are_checked_once(call, checked_calls):
    want = scan(DELTA, *call, backend="compiled")
    before = len(checked_calls)
    strided = DELTA.Inputs(*(torch.stack([x, x], -1)[..., 0] for x in call.inputs))
    for inputs in (call.inputs, strided):
        got = scan(DELTA, *call._replace(inputs=inputs), backend="compiled")
        assert all(torch.equal(a, b) for a, b in zip((got[0], *got[1]), (want[0], *want[1]), strict=True))
    assert len(checked_calls) == before


def test_different_calls_are_checked(call, checked_calls):
    """A gradient, a reset, another shape, an observer: each needs more than a single step."""
    scan(DELTA, *call)
    with_gradients = DELTA.Inputs(*(x.clone().requires_grad_() for x in call.inputs))
    others = [
        call._replace(inputs=with_gradients),
        call._replace(reset=torch.ones(2, 1, dtype=torch.bool)),
        arguments(DELTA, STEP._replace(B=1), torch.float32)._replace(reset=None),
        call._replace(state=None),
    ]
    for n, other in enumerate(others):
        before = len(checked_calls)
        y, _ = scan(DELTA, *other)
        assert len(checked_calls) == before + 1, n
        torch.testing.assert_close(y, scan(DELTA, *other, backend="reference")[0])
    assert scan(DELTA, *others[0])[0].requires_grad


FACTOR = 1.0


def fading(W: Matrix, k: Key, v: Value) -> Matrix:
    """FACTOR W + v k^T."""
    return FACTOR * W + torch.outer(v, k)


def test_change_of_a_global_takes_effect(monkeypatch):
    cell = Cell.from_function(fading)
    a = arguments(cell, STEP, torch.float32)._replace(reset=None)
    for factor in (1.0, 0.5, 0.25):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(2):
            got, want = scan(cell, *a)[0], scan(cell, *a, backend="reference")[0]
            torch.testing.assert_close(got, want)


def test_observer_is_called_at_every_step(call):
    scan(DELTA, *call)
    records = []
    WATCHERS.append(records.append)
    try:
        scan(DELTA, *call)
    finally:
        WATCHERS.remove(records.append)
    assert len(records) == 1
