"""The last state of a scan written where the caller says: over the one before it, or elsewhere."""

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
def given():
    return arguments(DELTA, STEP, torch.float32)._replace(reset=None)


def refusal(given, out, grad=False):
    with pytest.raises(InputError) as error, torch.set_grad_enabled(grad):
        scan(DELTA, *given, state_out=out)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_gradients_are_refused(given):
    inputs = DELTA.Inputs(*(x.clone().requires_grad_() for x in given.inputs))
    assert "left out where gradients are wanted" in refusal(given._replace(inputs=inputs), given.state, grad=True)
    learned = DELTA.State(given.state.W.clone().requires_grad_())
    assert "left out where gradients are wanted" in refusal(given._replace(state=learned), learned, grad=True)
    scan(DELTA, *given, state_out=DELTA.State(given.state.W.clone()))  # a call that is known is looked at, too
    assert "left out where gradients are wanted" in refusal(given, learned, grad=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # in the import of torch.func.jvp
def test_transforms_are_refused(given):
    def run(q):
        return scan(DELTA, given.inputs._replace(q=q), given.state, state_out=given.state)[0].sum()

    for transformed in (torch.func.grad(run), lambda q: torch.func.jvp(run, (q,), (q,))):
        with pytest.raises(InputError, match="left out"):
            transformed(given.inputs.q)


def test_shared_memory_is_refused(given):
    W = given.state.W
    room = torch.zeros(2 * W.numel())
    first, shifted = room[: W.numel()].view_as(W), room[8 : 8 + W.numel()].view_as(W)
    assert "separate from all other arguments" in refusal(
        given._replace(state=DELTA.State(first)), DELTA.State(shifted)
    )
    q = W.flatten()[: given.inputs.q.numel()].view_as(given.inputs.q)
    shares = given._replace(inputs=given.inputs._replace(q=q))
    assert "separate from all other arguments" in refusal(shares, given.state)
    cell = Cell.from_name("delta-rnn")
    a = arguments(cell, Shape(1, 1, 2, 4, 4), torch.float32)
    with pytest.raises(InputError, match="separate from all other arguments"):
        scan(cell, *a, state_out=a.state._replace(R=a.state.W))


def test_neighbours_in_one_tensor_are_taken(given):
    """As the states of several layers may lie."""
    room = torch.stack([given.state.W, given.state.W])
    y, state = scan(DELTA, *given)
    before, out = (DELTA.State(part) for part in room)
    assert torch.equal(scan(DELTA, *given._replace(state=before), state_out=out)[0], y)
    assert torch.equal(room[1], state.W)
    assert torch.equal(room[0], given.state.W)


def test_what_cannot_hold_the_state_is_refused(given):
    W = given.state.W
    assert "contiguous" in refusal(given, DELTA.State(W.mT.contiguous().mT))
    assert "contiguous" in refusal(given, DELTA.State(torch.zeros(1, 1, 1, 1).expand(W.shape)))
    assert "of torch.float32" in refusal(given, DELTA.State(W.double()))
    assert "[B, H, V, K]" in refusal(given, DELTA.State(W[:1]))
    assert "MemoryState" in refusal(given, W)


def test_a_graph_that_kept_the_state_sees_that_it_changed(given):
    weight = torch.ones_like(given.state.W, requires_grad=True)
    loss = (weight * given.state.W).sum()
    with torch.no_grad():
        scan(DELTA, *given, state_out=given.state)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_state_that_is_none_begins_at_zero(given):
    y, state = scan(DELTA, given.inputs)
    out = DELTA.State(torch.full_like(state.W, float("nan")))
    assert torch.equal(scan(DELTA, given.inputs, state_out=out)[0], y)
    assert torch.equal(out.W, state.W)


def test_torch_compile_updates_in_place(given):
    def run(x, state):
        return scan(DELTA, x, state, state_out=state)[0]

    y, state = scan(DELTA, *given)
    copy = DELTA.State(given.state.W.clone())
    with torch.no_grad():
        got = torch.compile(run, fullgraph=True, backend="eager")(given.inputs, copy)
    torch.testing.assert_close(got, y)
    torch.testing.assert_close(copy.W, state.W)


def test_half_precision_inputs_leave_a_wide_state(given):
    half = DELTA.Inputs(*(x.bfloat16() for x in given.inputs))
    y, state = scan(DELTA, half, given.state)
    again, out = scan(DELTA, half, given.state, state_out=given.state)
    assert again.dtype == torch.bfloat16
    assert torch.equal(again, y)
    assert out.W.dtype == torch.float32
    assert torch.equal(out.W, state.W)


def test_functions_take_it():
    q, k, v = torch.randn(3, 2, 1, 4, 8).unbind()
    g, beta, S = -torch.rand(2, 1, 4), torch.rand(2, 1, 4), torch.randn(2, 4, 8, 8)
    o, last = functional.gated_delta_rule(q, k, v, g, beta, initial_state=S, output_final_state=True)
    again, out = functional.gated_delta_rule(q, k, v, g, beta, initial_state=S, state_out=S)
    assert out is S
    assert torch.equal(again, o)
    assert torch.equal(S, last)


@pytest.fixture
def looked_at(monkeypatch):
    """How often a call was looked at in full."""
    calls, run = [], compiled.run
    monkeypatch.setattr(compiled, "run", lambda problem: calls.append(problem) or run(problem))
    return calls


def test_calls_alike_are_looked_at_once(given, looked_at):
    want = scan(DELTA, *given, backend="compiled")
    before = len(looked_at)
    strided = DELTA.Inputs(*(torch.stack([x, x], -1)[..., 0] for x in given.inputs))
    for inputs in (given.inputs, strided):
        got = scan(DELTA, *given._replace(inputs=inputs), backend="compiled")
        assert all(torch.equal(a, b) for a, b in zip((got[0], *got[1]), (want[0], *want[1]), strict=True))
    assert len(looked_at) == before


def test_calls_that_differ_are_looked_at(given, looked_at):
    """A gradient, a reset, another shape, a watcher: each needs more than one step alone."""
    scan(DELTA, *given)
    learning = DELTA.Inputs(*(x.clone().requires_grad_() for x in given.inputs))
    others = [
        given._replace(inputs=learning),
        given._replace(reset=torch.ones(2, 1, dtype=torch.bool)),
        arguments(DELTA, STEP._replace(B=1), torch.float32)._replace(reset=None),
        given._replace(state=None),
    ]
    for n, other in enumerate(others):
        before = len(looked_at)
        y, _ = scan(DELTA, *other)
        assert len(looked_at) == before + 1, n
        torch.testing.assert_close(y, scan(DELTA, *other, backend="reference")[0])
    assert scan(DELTA, *others[0])[0].requires_grad


FACTOR = 1.0


def fading(W: Matrix, k: Key, v: Value) -> Matrix:
    """FACTOR W + v k^T."""
    return FACTOR * W + torch.outer(v, k)


def test_a_step_that_changes_is_not_taken_for_what_it_was(monkeypatch):
    cell = Cell.from_function(fading)
    a = arguments(cell, STEP, torch.float32)._replace(reset=None)
    for factor in (1.0, 0.5, 0.25):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(2):
            got, want = scan(cell, *a)[0], scan(cell, *a, backend="reference")[0]
            torch.testing.assert_close(got, want)


def test_a_watcher_sees_every_step(given):
    scan(DELTA, *given)
    seen = []
    WATCHERS.append(seen.append)
    try:
        scan(DELTA, *given)
    finally:
        WATCHERS.remove(seen.append)
    assert len(seen) == 1
