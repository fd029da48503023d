"""Rules with transforms of `torch.func` inside become programs of `torch.export`, like any other rule."""

import pytest
import torch
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

from fastweights import Cell, inner, scan
from fastweights.signature import Key, Matrix, Rate, Value
from fastweights.testing import scan_checks

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
