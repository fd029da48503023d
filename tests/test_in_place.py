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
def scan_arguments():
    return arguments(DELTA, STEP, torch.float32)._replace(reset=None)


def error_message(scan_arguments, out, grad=False):
    with pytest.raises(InputError) as error, torch.set_grad_enabled(grad):
        scan(DELTA, *scan_arguments, state_out=out)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_gradients_are_rejected(scan_arguments):
    inputs = DELTA.Inputs(*(x.clone().requires_grad_() for x in scan_arguments.inputs))
    assert "left out where gradients are wanted" in error_message(
        scan_arguments._replace(inputs=inputs), scan_arguments.state, grad=True
    )
    trainable = DELTA.State(scan_arguments.state.W.clone().requires_grad_())
    assert "left out where gradients are wanted" in error_message(
        scan_arguments._replace(state=trainable), trainable, grad=True
    )
    scan(DELTA, *scan_arguments, state_out=DELTA.State(scan_arguments.state.W.clone()))  # a cached plan is checked, too
    assert "left out where gradients are wanted" in error_message(scan_arguments, trainable, grad=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # in the import of torch.func.jvp
def test_transforms_are_rejected(scan_arguments):
    def run(q):
        return scan(DELTA, scan_arguments.inputs._replace(q=q), scan_arguments.state, state_out=scan_arguments.state)[
            0
        ].sum()

    for transformed in (torch.func.grad(run), lambda q: torch.func.jvp(run, (q,), (q,))):
        with pytest.raises(InputError, match="left out"):
            transformed(scan_arguments.inputs.q)


def test_overlapping_memory_is_rejected(scan_arguments):
    W = scan_arguments.state.W
    storage = torch.zeros(2 * W.numel())
    first, shifted = storage[: W.numel()].view_as(W), storage[8 : 8 + W.numel()].view_as(W)
    assert "separate from all other arguments" in error_message(
        scan_arguments._replace(state=DELTA.State(first)), DELTA.State(shifted)
    )
    q = W.flatten()[: scan_arguments.inputs.q.numel()].view_as(scan_arguments.inputs.q)
    overlapping = scan_arguments._replace(inputs=scan_arguments.inputs._replace(q=q))
    assert "separate from all other arguments" in error_message(overlapping, scan_arguments.state)
    cell = Cell.from_name("delta-rnn")
    a = arguments(cell, Shape(1, 1, 2, 4, 4), torch.float32)
    with pytest.raises(InputError, match="separate from all other arguments"):
        scan(cell, *a, state_out=a.state._replace(R=a.state.W))


def test_adjacent_parts_of_one_tensor_are_accepted(scan_arguments):
    """As for the states of several layers in one tensor."""
    storage = torch.stack([scan_arguments.state.W, scan_arguments.state.W])
    y, state = scan(DELTA, *scan_arguments)
    before, out = (DELTA.State(part) for part in storage)
    assert torch.equal(scan(DELTA, *scan_arguments._replace(state=before), state_out=out)[0], y)
    assert torch.equal(storage[1], state.W)
    assert torch.equal(storage[0], scan_arguments.state.W)


def test_unsuitable_state_out_is_rejected(scan_arguments):
    W = scan_arguments.state.W
    assert "contiguous" in error_message(scan_arguments, DELTA.State(W.mT.contiguous().mT))
    assert "contiguous" in error_message(scan_arguments, DELTA.State(torch.zeros(1, 1, 1, 1).expand(W.shape)))
    assert "of torch.float32" in error_message(scan_arguments, DELTA.State(W.double()))
    assert "[B, H, V, K]" in error_message(scan_arguments, DELTA.State(W[:1]))
    assert "MemoryState" in error_message(scan_arguments, W)


def test_autograd_detects_the_change_of_a_saved_state(scan_arguments):
    weight = torch.ones_like(scan_arguments.state.W, requires_grad=True)
    loss = (weight * scan_arguments.state.W).sum()
    with torch.no_grad():
        scan(DELTA, *scan_arguments, state_out=scan_arguments.state)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_initial_state_of_none_is_zero(scan_arguments):
    y, state = scan(DELTA, scan_arguments.inputs)
    out = DELTA.State(torch.full_like(state.W, float("nan")))
    assert torch.equal(scan(DELTA, scan_arguments.inputs, state_out=out)[0], y)
    assert torch.equal(out.W, state.W)


def test_torch_compile_updates_in_place(scan_arguments):
    def run(x, state):
        return scan(DELTA, x, state, state_out=state)[0]

    y, state = scan(DELTA, *scan_arguments)
    copy = DELTA.State(scan_arguments.state.W.clone())
    with torch.no_grad():
        got = torch.compile(run, fullgraph=True, backend="eager")(scan_arguments.inputs, copy)
    torch.testing.assert_close(got, y)
    torch.testing.assert_close(copy.W, state.W)


def test_state_is_float32_for_inputs_in_half_precision(scan_arguments):
    half = DELTA.Inputs(*(x.bfloat16() for x in scan_arguments.inputs))
    y, state = scan(DELTA, half, scan_arguments.state)
    in_place, out = scan(DELTA, half, scan_arguments.state, state_out=scan_arguments.state)
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


def test_similar_calls_are_checked_once(scan_arguments, checked_calls):
    want = scan(DELTA, *scan_arguments, backend="compiled")
    before = len(checked_calls)
    strided = DELTA.Inputs(*(torch.stack([x, x], -1)[..., 0] for x in scan_arguments.inputs))
    for inputs in (scan_arguments.inputs, strided):
        got = scan(DELTA, *scan_arguments._replace(inputs=inputs), backend="compiled")
        assert all(torch.equal(a, b) for a, b in zip((got[0], *got[1]), (want[0], *want[1]), strict=True))
    assert len(checked_calls) == before


def test_different_calls_are_checked(scan_arguments, checked_calls):
    """A gradient, a reset, another shape, an observer: each needs more than a single step."""
    scan(DELTA, *scan_arguments)
    with_gradients = DELTA.Inputs(*(x.clone().requires_grad_() for x in scan_arguments.inputs))
    others = [
        scan_arguments._replace(inputs=with_gradients),
        scan_arguments._replace(reset=torch.ones(2, 1, dtype=torch.bool)),
        arguments(DELTA, STEP._replace(B=1), torch.float32)._replace(reset=None),
        scan_arguments._replace(state=None),
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


def test_observer_is_called_at_every_step(scan_arguments):
    scan(DELTA, *scan_arguments)
    records = []
    WATCHERS.append(records.append)
    try:
        scan(DELTA, *scan_arguments)
    finally:
        WATCHERS.remove(records.append)
    assert len(records) == 1
