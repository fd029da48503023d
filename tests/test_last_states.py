"""The states after the last time steps equal those of scans that end there."""

import pytest
import torch

from fastweights import Cell, InputError, scan, scan_last_states
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape
from fastweights.testing.tolerance import error, tolerance

EXACT, EXACT_GRADIENT = tolerance(torch.float64)
SHAPE = Shape(2, 5, 2, 3, 4)


def prefix(inputs, steps):
    return type(inputs)(*(x[:, :steps] for x in inputs))


def states_of_scans(cell, a, n):
    """The output of one scan, and the states of n scans."""
    y, _ = scan(cell, *a, backend="reference")
    states = []
    for steps in range(SHAPE.T - n + 1, SHAPE.T + 1):
        reset = None if a.reset is None else a.reset[:, :steps]
        part = a._replace(inputs=prefix(a.inputs, steps), reset=reset)
        states.append(scan(cell, *part, backend="reference")[1])
    return [y, *(torch.stack(leaves) for leaves in zip(*states, strict=True))]


@pytest.mark.parametrize("name", ["sum", "delta", "mamba3", "srwm", "mlstm", "short-convolution"])
@pytest.mark.parametrize("n", [1, 3, 5])
def test_states_and_gradients_equal_those_of_scans_that_end_there(name, n):
    cell = Cell.from_name(name)
    a = scan_checks.with_gradients(scan_checks.arguments(cell, SHAPE))
    y, states = scan_last_states(cell, a.inputs, n, a.state, a.params, a.reset, a.initial_state)
    got, want = [y, *states], states_of_scans(cell, a, n)
    weights = [torch.rand_like(x) for x in want]
    leaves = [*a.inputs, *a.state, *(a.params or ())]
    gradients = (
        torch.autograd.grad(
            sum((w * x).sum() for w, x in zip(weights, results, strict=True)), leaves, allow_unused=True
        )
        for results in (got, want)
    )
    assert all(error(mine, theirs) < EXACT for mine, theirs in zip(got, want, strict=True))
    for mine, theirs in zip(*gradients, strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or error(mine, theirs) < EXACT_GRADIENT


def test_all_steps_without_a_state_start_at_the_initial_state():
    cell = Cell.from_name("delta")
    a = scan_checks.arguments(cell, SHAPE)
    initial = cell.State(torch.randn(2, 4, 3, dtype=torch.float64))
    _, states = scan_last_states(cell, a.inputs, SHAPE.T, initial_state=initial)
    _, first = scan(cell, prefix(a.inputs, 1), initial_state=initial)
    assert error(states.W[0], first.W) < EXACT


@pytest.mark.parametrize("n", [0, 6])
def test_numbers_of_states_out_of_range_are_refused(n):
    cell = Cell.from_name("sum")
    with pytest.raises(InputError, match="n must be"):
        scan_last_states(cell, scan_checks.arguments(cell, SHAPE).inputs, n)
