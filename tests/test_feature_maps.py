"""Feature maps and normalisers: properties of each, and properties of all."""

import math

import pytest
import torch

from fastweights import InputError
from fastweights.cell import Cell, examples
from fastweights.compiler import pipeline
from fastweights.compiler.specialise.guard import Guard
from fastweights.layers.base.fused_inputs import prepared_by
from fastweights.layers.base.slow_net import Keys, feature_map, normaliser
from fastweights.registry import FEATURE_MAPS, NORMALISERS
from fastweights.testing.tolerance import error, tolerance

SIZE = 6
RANDOM = [name for name in FEATURE_MAPS.names() if name.endswith("favor")]
NAMES = [*FEATURE_MAPS.names(), "dpfp-3", *(f"{name}-{directions}" for name in RANDOM for directions in (5, 20))]
POSITIVE = [name for name in NAMES if name not in ("identity", "tanh")]


@pytest.fixture(params=NAMES)
def phi(request):
    return feature_map(request.param, SIZE).eval()


def test_maps_the_last_axis_to_its_output_size(phi):
    assert phi(torch.randn(2, 3, SIZE)).shape == (2, 3, phi.output_size)


def test_gradient_equals_finite_differences(phi):
    x = torch.randn(4, SIZE, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(phi.double(), x)


@pytest.mark.parametrize("name", POSITIVE)
def test_positive_maps_are_not_negative(name):
    assert (feature_map(name, SIZE)(10 * torch.randn(100, SIZE)) >= 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_feature_map_has_a_formula_and_a_source(name):
    description = FEATURE_MAPS.describe(name.rstrip("-0123456789"))
    assert "phi(x)" in description.formula
    assert description.source


def test_dpfp_equals_its_formula():
    """Schlag et al. 2021, Eq. 37, element by element."""
    x, nu = torch.randn(SIZE, dtype=torch.float64), 3
    u = [max(a, 0) for a in x.tolist()] + [max(-a, 0) for a in x.tolist()]
    want = [u[i] * u[(i - j) % (2 * SIZE)] for j in range(1, nu + 1) for i in range(2 * SIZE)]
    assert feature_map("dpfp-3", SIZE)(x).tolist() == pytest.approx(want)


def test_elu_equals_its_formula():
    """Schlag et al. 2021, Eq. 30: x + 1 above 0, exp(x) below."""
    x = torch.linspace(-30, 30, 121, dtype=torch.float64)
    want = torch.tensor([a + 1 if a > 0 else math.exp(a) for a in x.tolist()], dtype=torch.float64)
    assert error(feature_map("elu", 121)(x), want) < tolerance(torch.float64).forward


@pytest.mark.parametrize("name", ["dpfp-0", "dpfp-12", "elu-2", "favor-0", "elo"])
def test_invalid_options_are_rejected(name):
    with pytest.raises(InputError, match="must be"):
        feature_map(name, SIZE)


def test_elu_does_not_vanish_in_half_precision():
    assert (feature_map("elu", SIZE)(torch.full((SIZE,), -8.0, dtype=torch.bfloat16)) > 0).all()


@pytest.mark.parametrize(("name", "scale"), [("favor", 1), ("gaussian-favor", 1), ("scaled-favor", SIZE**-0.5)])
def test_favor_approximates_the_softmax_kernel(name, scale):
    q, k = 0.3 * torch.randn(2, 50, SIZE, dtype=torch.float64) / scale**0.5
    errors = []
    for directions in (60, 60_000):
        phi = feature_map(f"{name}-{directions}", SIZE).double().eval()
        errors.append(error((phi(q) * phi(k)).sum(-1), (scale * q * k).sum(-1).exp()))
    assert errors[1] < 0.02 < errors[0]


def test_gaussian_favor_equals_the_formula_of_the_paper():
    """Schlag et al. 2021, Eqs. 31-32, feature by feature, with rows of R from N(0, I)."""
    phi, x = feature_map("gaussian-favor-7", SIZE).double().eval(), torch.randn(SIZE, dtype=torch.float64)
    R = phi.directions.T
    h = math.exp(-sum(a * a for a in x.tolist()) / 2) / 2**0.5
    want = [h / 7**0.5 * math.exp(sign * float(r @ x)) for sign in (1, -1) for r in R]
    assert phi(x).tolist() == pytest.approx(want, rel=1e-12)
    directions = feature_map("gaussian-favor-20000", SIZE).directions
    assert error(directions @ directions.T / 20_000, torch.eye(SIZE)) < 0.03
    product = directions.T[:SIZE] @ directions[:, :SIZE]
    assert (product - product.diag().diag()).abs().max() > 0.1


def test_relu_favor_equals_its_formula_and_approximates_its_kernel():
    """Performer-ReLU: relu(+-R x) / sqrt(2 m); its mean is half the arc-cosine kernel of first order."""
    phi, x = feature_map("relu-favor-7", SIZE).double().eval(), torch.randn(SIZE, dtype=torch.float64)
    want = [max(sign * float(r @ x), 0) / 14**0.5 for sign in (1, -1) for r in phi.directions.T]
    assert phi(x).tolist() == pytest.approx(want, rel=1e-12)
    features, (q, k) = (
        feature_map("relu-favor-60000", SIZE).double().eval(),
        torch.randn(2, 50, SIZE, dtype=torch.float64),
    )
    lengths = q.norm(dim=-1) * k.norm(dim=-1)
    angle = ((q * k).sum(-1) / lengths).acos()
    kernel = lengths * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)
    assert error((features(q) * features(k)).sum(-1), kernel) < 0.02


def test_favor_directions_are_orthogonal_in_groups():
    directions = feature_map("favor-8", SIZE).directions
    product = directions.T @ directions
    first = product[:SIZE, :SIZE]
    assert (first - first.diag().diag()).abs().max() < 1e-5


@pytest.mark.parametrize("directions", [4, 6, 9])
def test_row_favor_rows_are_orthogonal_in_groups(directions):
    matrix = feature_map(f"row-favor-{directions}", SIZE).directions
    assert matrix.shape == (SIZE, directions)
    first = matrix[:directions] @ matrix[:directions].T
    assert (first - first.diag().diag()).abs().max() < 1e-5


def test_row_favor_has_the_constant_of_the_language_models():
    phi = feature_map("row-favor-4", SIZE).double().eval()
    x = torch.randn(3, SIZE, dtype=torch.float64)
    w_x, half = x @ phi.directions, x.square().sum(-1, keepdim=True) / 2
    want = (torch.cat([(w_x - half).exp(), (-w_x - half).exp()], -1) + 1e-4) / 8**0.5
    assert torch.allclose(phi(x), want, rtol=1e-12, atol=0)


def test_favor_draws_directions_in_training_only():
    phi, x = feature_map("favor", SIZE), torch.randn(3, SIZE)
    assert not torch.equal(phi(x), phi(x))
    phi.eval()
    copy = feature_map("favor", SIZE).eval()
    copy.load_state_dict(phi.state_dict())
    assert torch.equal(phi(x), phi(x))
    assert torch.equal(phi(x), copy(x))


@pytest.mark.parametrize("name", [*NORMALISERS.names(), "sum-6"])
def test_normaliser_keeps_zero_finite(name):
    x = torch.zeros(3, SIZE, requires_grad=True)
    y = normaliser(name)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert (y == 0).all()
    assert gradient.isfinite().all()


def test_normalisers_normalise():
    x = torch.rand(5, SIZE, dtype=torch.float64) + 0.5
    assert NORMALISERS.load("sum")(x).sum(-1).tolist() == pytest.approx([1] * 5, abs=1e-15)
    assert torch.equal(normaliser("sum-3")(x), x / (x.sum(-1, keepdim=True) + 1e-3))
    assert NORMALISERS.load("l2")(x).norm(dim=-1).tolist() == pytest.approx([1] * 5, abs=1e-5)
    assert NORMALISERS.load("none")(x) is x


@pytest.mark.parametrize("normalised", [*NORMALISERS.names(), "sum-6"])
@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(feature_map(name, SIZE), "function")])
def test_step_with_feature_maps_equals_maps_and_step(name, normalised):
    """A step with maps inside compiles, has a guard, and equals the maps followed by the step."""
    keys = Keys(SIZE, name, normalised)
    cell = prepared_by(Cell.from_name("delta"), keys, "sigmoid")
    sizes = {"K": keys.output_size, "V": 4}
    assert pipeline.passes(cell, sizes, torch.float32).forward.made
    assert Guard(cell).holds()
    state, x = examples(cell, sizes, torch.float64, value=0.3)
    inner, prepare = cell.inner_cell
    assert x.k.shape == (SIZE,)
    assert torch.equal(prepare(x).k, keys(x.k))
    assert all(map(torch.equal, cell.step(state, x)[0], inner.step(state, prepare(x))[0]))


def test_random_features_are_not_part_of_a_step():
    delta = Cell.from_name("delta")
    assert prepared_by(delta, Keys(SIZE, "favor", "sum"), "sigmoid") is delta
