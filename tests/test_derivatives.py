"""Derivatives of every kind through a scan are correct, or give an error of one line."""

from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

import my_memories
from fastweights import Cell, InputError, explain, scan
from fastweights.layers import make_layer
from fastweights.testing import checks_in, scan_checks
from fastweights.testing.samples import Shape, sample_inputs
from fastweights.testing.tolerance import error, tolerance

# A warning of PyTorch's forward mode on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

DELTA = Cell.from_name("delta")
SHAPE = Shape(1, 3, 1, 3, 2)
POINT = tuple(sample_inputs(DELTA, SHAPE))
DIRECTION = tuple(torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(5)) for x in POINT)


@pytest.mark.parametrize("check", checks_in(scan_checks).values(), ids=checks_in(scan_checks))
def test_rule_with_a_gradient_satisfies_every_guarantee(check: Any) -> None:
    """`torch.func.grad` runs under vmap, gradient checkpointing, `torch.compile` and `torch.export`."""
    check(Cell.from_function(my_memories.descent), "reference")


def run(backend: str) -> Any:
    return lambda *x: scan(DELTA, DELTA.Inputs(*x), backend=backend)[0]


def dual_numbers(f: Any) -> Tensor:
    with forward_ad.dual_level():
        y = f(*map(forward_ad.make_dual, POINT, DIRECTION))
        return forward_ad.unpack_dual(y).tangent


def double_backward(f: Any) -> Tensor:
    """A directional derivative by two backward passes, for every order of differentiation."""
    x = [leaf.clone().requires_grad_() for leaf in POINT]
    y = f(*x)
    v = torch.zeros_like(y, requires_grad=True)
    gradients = torch.autograd.grad(y, x, v, create_graph=True)
    return torch.autograd.grad(gradients, v, DIRECTION)[0]


def batched(f: Any) -> tuple[Tensor, ...]:
    x = [leaf.clone().requires_grad_() for leaf in POINT]
    y = f(*x)
    return torch.autograd.grad(y, x, torch.stack([torch.ones_like(y), -torch.ones_like(y)]), is_grads_batched=True)


def squared(f: Any) -> Any:
    return lambda *x: f(*x).square().sum()


KINDS = {
    "jvp": lambda f: func.jvp(f, POINT, DIRECTION)[1],
    "jacfwd": lambda f: func.jacfwd(f)(*POINT),
    "jacrev": lambda f: func.jacrev(f)(*POINT),
    "vjp": lambda f: func.vjp(f, *POINT)[1](f(*POINT)),
    "grad": lambda f: func.grad(squared(f))(*POINT),
    "hessian": lambda f: func.hessian(lambda q: squared(f)(q, *POINT[1:]))(POINT[0]),
    "vmap": lambda f: func.vmap(f)(*(torch.stack([x, 2 * x]) for x in POINT)),
    "dual": dual_numbers,
    "forward jacobian": lambda f: torch.autograd.functional.jacobian(f, POINT, vectorize=True, strategy="forward-mode"),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_auto_uses_the_reference_for_other_derivatives(kind):
    for got, want in zip(tree_leaves(kind(run("auto"))), tree_leaves(kind(run("reference"))), strict=True):
        assert error(got, want) <= tolerance(torch.float64).gradient
    for backend in ("compiled", "chunkwise"):
        with pytest.raises(InputError, match=r"it only has a backward pass|it has no forward-mode"):
            kind(run(backend))


def test_forward_mode_equals_two_backward_passes():
    want = double_backward(run("reference"))
    for kind in ("jvp", "dual"):
        assert error(KINDS[kind](run("auto")), want) <= tolerance(torch.float64).gradient


@pytest.mark.parametrize("kind", [double_backward, batched])
def test_unsupported_derivative_after_a_kernel_is_rejected(kind):
    with pytest.raises(InputError, match="backend must be 'reference'"):
        kind(run("auto"))
    kind(run("reference"))


def test_explain_names_forward_mode_as_the_reason():
    with forward_ad.dual_level():
        explanation = explain(DELTA, DELTA.Inputs(*POINT))
    assert explanation.chosen == "reference"
    assert "forward-mode derivatives" in explanation.reasons["compiled"]


def test_vmap_of_grad_equals_gradients_per_member():
    layer, x = make_layer("delta-net", d_model=8, num_heads=2).double(), torch.randn(3, 5, 8, dtype=torch.float64)

    def loss(parameters: dict[str, Tensor], member: Tensor) -> Tensor:
        return func.functional_call(layer, parameters, (member[None],))[0].square().sum()

    each = func.vmap(func.grad(loss), in_dims=(None, 0))(dict(layer.named_parameters()), x)
    for n, member in enumerate(x):
        layer.zero_grad()
        layer(member[None])[0].square().sum().backward()
        for name, parameter in layer.named_parameters():
            assert error(each[name][n], parameter.grad) <= tolerance(torch.float64).gradient


def test_layer_under_vmap_and_torch_compile():
    layer, x = make_layer("delta-net", d_model=8, num_heads=2), torch.randn(2, 2, 2, 8)
    torch.testing.assert_close(func.vmap(lambda x: layer(x)[0])(x), torch.stack([layer(each)[0] for each in x]))
    gradient = func.grad(lambda x: layer(x)[0].square().sum())
    compiled = torch.compile(gradient, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x[0]), gradient(x[0]))
