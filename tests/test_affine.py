"""The affine form that the compiler finds: of the library's cells, and of cells as strangers write them."""

import pytest
import torch

from fastweights import Cell
from fastweights.compiler.affine import AffineForm
from fastweights.compiler.batched import batched
from fastweights.compiler.forms import affine_of
from fastweights.compiler.lower import lower_forward
from fastweights.compiler.op import sizes_of
from fastweights.compiler.trace import trace_forward
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape
from fastweights.testing.tolerance import error, tolerance

EXACT = tolerance(torch.float64).forward


def found(cell: Cell) -> AffineForm | str:
    return affine_of(cell.key, tuple(cell.example_sizes.items()), torch.float64)


FORMS = {
    "sum": "W <- W + v k^T",
    "delta": "W <- W - W e f^T + v k^T",
    "gated-delta": "W <- W a - W e f^T + v k^T",
    "linear-attention": "W and z <- W and z + v k^T",
    "half-attention-delta": "W <- W - W e f^T + v k^T, z <- z + v k^T",
    "attention-delta": "z <- z + v k^T, W <- W - W e f^T + v k^T",
    "gla": "W <- W diag(a) + v k^T",
    "hgrn2": "W <- W diag(a) + v k^T",
    "rwkv6": "W <- W diag(a) + v k^T",
    "kda": "W <- W diag(a) - W e f^T + v k^T",
    "gdn2": "W <- W diag(a) - W e f^T + v k^T",
    "rwkv7": "W <- W diag(a) - W e f^T + v k^T",
    "comba": "W <- W a - W e f^T + v k^T",
    "delta-product": "W <- W a - 2 (W e f^T) + 2 (v k^T)",
    "mlstm": "m <- max(m + a, b), W and z <- W and z a + v k^T",
    "gated-oja": "W is read along one axis, and fades or is erased along the other",
    "longhorn": "every number of W fades by itself",
    "titans": "W is made from surprise, which waits for W, in titans.py:",
    "outer-product": "W is put through tanh, in outer_product.py:",
    "fast-weight-memory": "W is multiplied with itself, in fast_weight_memory.py:",
    "delta-lstm": "every row of W is in a product with a vector of its own, in delta.py:",
}


@pytest.mark.parametrize(("name", "told"), FORMS.items(), ids=FORMS)
def test_form_is_found_or_what_stands_in_the_way(name, told):
    assert told in str(found(Cell.named(name)))


@pytest.mark.parametrize("name", Cell.names())
def test_values_are_computed_for_all_steps_at_once(name):
    """Whatever a lowered step says, of all members, steps and heads."""
    cell = Cell.named(name)
    a = scan_checks.arguments(cell, Shape(2, 3, 2, 5, 4))
    sizes = sizes_of(cell, [*a.inputs, *a.state, *(a.params or ())])
    step = lower_forward(trace_forward(cell, sizes, torch.float64))
    states = [torch.stack([x, x.flip(0), x / 2], 1) for x in a.state]
    params = [] if a.params is None else [cell.Params(*(x.expand(2, 3, *x.shape) for x in a.params))]
    new, y = torch.vmap(torch.vmap(torch.vmap(cell.step)))(cell.State(*states), a.inputs, *params)
    given = [*step.state.values(), *step.inputs.values(), *step.params.values(), *step.after.values()]
    run = batched([*step.new_state.values(), step.y], given)
    got = run((2, 3, 2), *states, *a.inputs, *(a.params or ()), *new)
    for mine, theirs in zip(got, (*new, y), strict=True):
        assert error(mine.expand(theirs.shape), theirs) < EXACT
