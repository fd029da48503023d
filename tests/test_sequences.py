"""Variable-length sequences, bidirectional layers, initial states and control signals, in addition to the checks."""

from itertools import pairwise
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from fastweights import Cell, InputError, scan
from fastweights.core.padding import valid_steps
from fastweights.layers import (
    Bidirectional,
    FastWeight,
    FastWeightProgrammer,
    PeriodicReset,
    WithShortConvolution,
    make_layer,
)
from fastweights.layers.lstm import LSTMState
from fastweights.models.block import Block
from fastweights.signature import Control, Key, Matrix, Value
from fastweights.testing import layer_checks, scan_checks
from fastweights.testing.layer_checks import D
from fastweights.testing.samples import Shape, sample_inputs
from fastweights.testing.tolerance import error, tolerance

EXACT = tolerance(torch.float64).forward


def double(layer):
    return layer.double().eval()


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64)


# Lengths


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("backend", ["compiled", "chunkwise", "reference"])
def test_lengths_of_any_integer_type_and_stride(backend, dtype):
    cell = Cell.from_name("delta")
    x = sample_inputs(cell, scan_checks.ODD)
    strided = torch.tensor([5, 0, 9, 0], dtype=dtype)[::2]
    y, state = scan(cell, x, lengths=strided, backend=backend)
    want, last = scan(cell, x, lengths=torch.tensor([5, 9]), backend="reference")
    assert max(error(y, want), error(state.W, last.W)) < EXACT


def test_lengths_compile_and_export():
    layer, x, lengths = make_layer("delta-net", D, num_heads=2), torch.randn(2, 9, D), torch.tensor([3, 9])
    want, last = layer(x, None, None, lengths)

    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, lengths):
            return self.layer(x, None, None, lengths)

    torch.compiler.reset()
    compiled = torch.compile(Padded(), fullgraph=True, backend="aot_eager")
    exported = torch.export.export(Padded(), (x, lengths)).module()
    for run in (compiled, exported):
        torch.testing.assert_close(run(x, lengths), (want, last))
        torch.testing.assert_close(run(x, lengths.flip(0)), tuple(layer(x, None, None, lengths.flip(0))))


def test_wider_padding_changes_nothing():
    layer, x, lengths = double(make_layer("gated-delta", D, num_heads=2)), numbers(2, 9, D), torch.tensor([4, 9])
    y, state = layer(x, None, None, lengths)
    wider = torch.cat([x, numbers(2, 30, D)], dim=1)
    padded, last = layer(wider, None, None, lengths)
    # Matrix products with more rows may sum in a different order.
    assert error(padded[:, :9], y) < EXACT
    assert error(last.W, state.W) < EXACT


def test_wider_padding_leaves_a_scan_bit_identical():
    cell = Cell.from_name("gated-delta")
    wide = sample_inputs(cell, Shape(2, 39, 2, 4, 3))
    narrow, lengths = type(wide)(*(x[:, :9] for x in wide)), torch.tensor([4, 9])
    y, state = scan(cell, narrow, lengths=lengths)
    padded, last = scan(cell, wide, lengths=lengths)
    assert torch.equal(padded[:, :9], y)
    assert torch.equal(last.W, state.W)


def test_cell_that_divides_by_its_key_has_no_nan_in_the_padding():
    def unit(W: Matrix, k: Key, v: Value) -> Matrix:
        return W + torch.outer(v, k / k.norm())

    cell = Cell.from_function(unit)
    x = [leaf.requires_grad_() for leaf in sample_inputs(cell, scan_checks.ODD)]
    y, _ = scan(cell, cell.Inputs(*x), lengths=torch.tensor([3, 37]), backend="reference")
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(y.sum(), x))


# Both directions


def segments(reset, end):
    """Pairs of start and end of the sequences of one row."""
    starts = [t for t in range(end) if t == 0 or reset[t]]
    return pairwise([*starts, end])


def read(layer, x):
    """Output of a layer with the delta rule, with an explicit scan."""
    y, _ = scan(layer.cell, layer.slow_net(x))
    return layer.output(y.flatten(2))


@pytest.mark.parametrize("lengths", [None, [9, 4, 0]], ids=["whole", "padded"])
@pytest.mark.parametrize("packed", [False, True])
def test_bidirectional_equals_scans_of_the_input_and_its_reverse(lengths, packed):
    ahead, back = (double(make_layer("delta-net", D, num_heads=2)) for _ in range(2))
    x, reset = numbers(3, 9, D), torch.zeros(3, 9, dtype=torch.bool)
    if packed:
        reset[:, [0, 3, 7]] = True
    want = torch.zeros_like(x)
    for b, end in enumerate(lengths or [9, 9, 9]):
        for start, stop in segments(reset[b], end):
            part = x[b : b + 1, start:stop]
            want[b, start:stop] = (read(ahead, part) + read(back, part.flip(1)).flip(1))[0]
    ends = None if lengths is None else torch.tensor(lengths)
    y, _ = Bidirectional(ahead, back)(x, None, reset if packed else None, ends)
    assert error(y, want) < EXACT


def test_bidirectional_returns_the_last_states_of_both_directions():
    ahead, back = (double(make_layer("lstm", D, num_heads=1)) for _ in range(2))
    x = numbers(2, 6, D)
    _, state = Bidirectional(ahead, back)(x, lengths=torch.tensor([6, 2]))
    assert error(state.select(1).forward.c, ahead(x[1:, :2])[1].c) < EXACT
    assert error(state.select(1).backward.c, back(x[1:, :2].flip(1))[1].c) < EXACT


def test_bidirectional_padding_has_no_gradient_even_if_it_is_nan():
    layer = Bidirectional(*(double(make_layer("gated-delta", D, num_heads=2)) for _ in range(2)))
    x = numbers(2, 6, D)
    x[1, 2:] = float("nan")
    layer(x.requires_grad_(), lengths=torch.tensor([6, 2]))[0].square().sum().backward()
    assert (x.grad[1, 2:] == 0).all()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in layer.parameters())


def test_bidirectional_accepts_the_initial_state_only():
    layer = Bidirectional(make_layer("sum", D, num_heads=2), make_layer("lstm", D, num_heads=2))
    x = torch.randn(2, 5, D)
    y, state = layer(x)
    assert torch.equal(layer(x, layer.initial_state(2))[0], y)
    with pytest.raises(
        InputError,
        match=r"state must be None, since both directions start at an end of the sequence, got Bidir.* Pass all",
    ):
        layer(x, state)


def test_bidirectional_layers_may_share_weights_and_be_in_a_block():
    shared = make_layer("delta-net", D, num_heads=2)
    y, _ = Block(Bidirectional(shared, shared), D, D)(torch.randn(2, 5, D), lengths=torch.tensor([5, 0]))
    assert y[0].any()
    assert not y[1].any()


# Initial states

WITH_INITIAL_STATE = {
    "delta-net": lambda: make_layer("delta-net", D, num_heads=2, initial_state="learned"),
    "gated-delta, chunkwise": lambda: make_layer(
        "gated-delta", D, num_heads=2, initial_state="learned", backend="chunkwise"
    ),
    "linear attention, reference": lambda: make_layer(
        "linear-attention", D, num_heads=2, initial_state="learned", backend="reference"
    ),
    "delta-rnn": lambda: make_layer("delta-rnn", D, num_heads=2, initial_state="learned"),
    "srwm": lambda: make_layer("srwm", D, num_heads=2, initial_state="learned"),
    "no-carry-srwm": lambda: make_layer("no-carry-srwm", D, num_heads=2, period=5, initial_state="learned"),
    "full-recurrent-delta-net": lambda: make_layer("full-recurrent-delta-net", D, num_heads=2, initial_state="learned"),
    "associative-lstm": lambda: make_layer("associative-lstm", D, num_heads=2, initial_state="learned"),
    "fast-weight-rnn": lambda: make_layer("fast-weight-rnn", D, num_heads=2, initial_state="learned"),
    "fast-weight-rnn as attention": lambda: make_layer(
        "fast-weight-rnn", D, num_heads=2, form="attention", initial_state="learned"
    ),
    "multi-level-fast-weight-rnn": lambda: make_layer(
        "multi-level-fast-weight-rnn", D, num_heads=2, initial_state="learned"
    ),
    "neurons-and-synapses": lambda: make_layer("neurons-and-synapses", D, num_heads=2, initial_state="learned"),
    "lstm": lambda: make_layer("lstm", D, num_heads=2, num_layers=2, initial_state="learned"),
    "irnn": lambda: make_layer("irnn", D, num_heads=2, initial_state="learned"),
    "behind a convolution": lambda: WithShortConvolution(
        make_layer("delta-net", D, num_heads=2, initial_state="learned"), D
    ),
    "constant": lambda: make_layer(
        "delta-net", D, num_heads=2, initial_state=Cell.from_name("delta").State(torch.eye(D // 2))
    ),
}
CHECKS = [
    layer_checks.check_no_state_is_the_initial_state,
    layer_checks.check_packed_equals_separate,
    layer_checks.check_packed_gradients_equal_separate,
    layer_checks.check_padded_equals_members,
    layer_checks.check_gradients_reach_everything,
    layer_checks.check_state_dict_is_complete,
    layer_checks.check_state_keeps_its_dtype,
    layer_checks.check_invalid_states_and_marks_are_refused,
]


def started(make):
    """Function that creates the layer with an initial state other than 0."""

    def moved():
        layer = make()
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                if "start." in name:
                    parameter.add_(torch.linspace(0.1, 0.5, parameter.numel()).view_as(parameter))
        return layer

    return moved


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("make", WITH_INITIAL_STATE.values(), ids=WITH_INITIAL_STATE)
def test_layer_with_an_initial_state_has_the_guarantees(make, check):
    check(started(make))


@pytest.mark.parametrize("make", WITH_INITIAL_STATE.values(), ids=WITH_INITIAL_STATE)
def test_a_reset_returns_to_the_initial_state(make):
    layer = started(make)().double().eval()
    assert any(leaf.any() for leaf in tree_leaves(layer.initial_state(2)) if leaf.is_floating_point())
    x, reset = numbers(2, 4, D), torch.tensor([[False, False, True, False]] * 2)
    _, after = layer(x, None, reset)
    _, fresh = layer(x[:, 2:], layer.initial_state(2))
    pairs = zip(tree_leaves(after), tree_leaves(fresh), strict=True)
    assert all(error(mine, theirs) < EXACT for mine, theirs in pairs)


def test_constant_initial_state_is_saved_and_does_not_learn():
    layer = make_layer("delta-net", D, num_heads=2, initial_state=Cell.from_name("delta").State(torch.eye(D // 2)))
    assert torch.equal(layer.initial_state(3).W, torch.eye(D // 2).expand(3, 2, D // 2, D // 2))
    assert "start.W" in layer.state_dict()
    assert "start.W" not in dict(layer.named_parameters())


def test_lstm_starts_from_constants():
    layer = make_layer("lstm", D, num_heads=1, initial_state=LSTMState(h=0.0, c=1.0))
    assert (layer.initial_state(2).c == 1).all()


@pytest.mark.parametrize(
    "initial_state", ["zeros", 3, LSTMState(0.0, 0.0), Cell.from_name("delta").State(torch.eye(3))]
)
def test_initial_states_that_do_not_fit_are_refused(initial_state):
    with pytest.raises(InputError, match=r"initial_state(\.W)? must be "):
        make_layer("delta-net", D, num_heads=2, initial_state=initial_state)


# Controls


class MarkedInputs(NamedTuple):
    k: Key
    v: Value
    store: Control


class MarkedState(NamedTuple):
    W: Matrix


def marked(state: MarkedState, x: MarkedInputs) -> tuple[MarkedState, Value]:
    """W <- W + v k^T where store is 1, y = W k."""
    W = state.W + x.store * torch.outer(x.v, x.k)
    return MarkedState(W), W @ x.k


def marked_layer():
    return double(FastWeight(D, 2, marked))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float32, torch.float64])
def test_controls_of_any_dtype_reach_the_cell(dtype):
    layer, x, mark = marked_layer(), numbers(2, 6, D), torch.rand(2, 6) < 0.5
    y, state = layer(x, controls={"store": mark.to(dtype)})
    inputs = layer.cell.inner_cell.prepare(layer.slow_net(x, {"store": mark}))
    want = torch.einsum("bt,bthv,bthk->bhvk", mark.double(), inputs.v, inputs.k)
    assert error(state.W, want) < EXACT
    assert y.dtype == x.dtype


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_scan_accepts_signals_of_bool_and_int(backend):
    x = sample_inputs(Cell.from_function(marked), scan_checks.ODD)
    mark = x.store > 0.5
    want, _ = scan(marked, x._replace(store=mark.double()), backend=backend)
    for signal in (mark, mark.int()):
        y, _ = scan(marked, x._replace(store=signal), backend=backend)
        assert y.dtype == want.dtype
        assert torch.equal(y, want)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda layer: WithShortConvolution(layer, D),
        lambda layer: PeriodicReset(layer, 3),
        lambda layer: Block(layer, D, D),
        lambda layer: FastWeightProgrammer(nn.Identity(), layer, D),
        lambda layer: FastWeightProgrammer(nn.Linear(2 * D, D), layer, D, output_feedback=True),
        lambda layer: Bidirectional(layer, make_layer("sum", D, num_heads=2)),
    ],
    ids=["convolved", "reset-every", "block", "programmer", "programmer that sees y", "bidirectional"],
)
def test_wrapping_layers_pass_controls_on(wrap):
    layer, x, mark = double(wrap(marked_layer())), numbers(2, 6, D), torch.zeros(2, 6, dtype=torch.bool)
    assert layer.controls == ("store",)
    nothing, _ = layer(x, controls={"store": mark})
    mark[:, 2] = True
    something, _ = layer(x, controls={"store": mark})
    changed = (something - nothing).abs().sum(-1) > 0
    assert not changed[:, :2].any()
    assert changed[:, 2].all()


@pytest.mark.parametrize(
    ("controls", "message"),
    [
        (None, r"controls must be signals for store, which marked needs, got none\. Call layer\(x, controls=\{'store'"),
        ({"stores": torch.ones(2, 6)}, r"controls must be among store, got 'stores'\."),
        ({"store": torch.ones(6)}, r"store must be \[B, T\] = \[2, 6\], got \[6\]"),
        ({"store": torch.ones(2, 6, 3)}, r"store must be \[2, 6\] like the steps of x, got \[2, 6, 3\]"),
        (
            {"store": torch.ones(2, 6, dtype=torch.complex64)},
            r"store must be bool, int or floating, got torch.complex64",
        ),
        ({"store": [[1] * 6] * 2}, r"store must be a tensor, got list\."),
    ],
)
def test_controls_that_do_not_fit_are_refused(controls, message):
    with pytest.raises(InputError, match=message):
        marked_layer()(numbers(2, 6, D), controls=controls)


def test_layers_without_controls_refuse_them():
    with pytest.raises(InputError, match="controls must be left out for DeltaNet, which takes none, got 'store'"):
        make_layer("delta-net", D, num_heads=2)(torch.randn(1, 2, D), controls={"store": torch.ones(1, 2)})


# Remedies in error messages


@pytest.mark.parametrize(
    ("spoil", "remedy"),
    [
        (lambda x: x.double(), "Use x.to(torch.float32) or layer.to(torch.float64)."),
        (lambda x: x.bfloat16(), "Use x.to(torch.float32) or layer.to(torch.bfloat16)."),
        (lambda x: x.long(), "Use x.to(torch.float32), or an embedding for tokens."),
        (lambda x: x.to(torch.float8_e5m2), "Use x.to(torch.float32)."),
        (lambda x: x.to(torch.complex64), "Use torch.view_as_real(x).flatten(-2), with twice the features."),
        (lambda x: x.to_sparse(), "Use x.to_dense()."),
        (lambda x: torch.nested.nested_tensor(list(x)), "Use torch.nested.to_padded_tensor(x, 0.0) and lengths."),
        (lambda x: x.to("meta"), "Use x.to('cpu') or layer.to('meta')."),
    ],
    ids=["float64", "bfloat16", "integers", "float8", "complex", "sparse", "nested", "another device"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_error_messages_have_a_remedy(spoil, remedy):
    with pytest.raises(InputError) as refusal:
        make_layer("delta-net", D, num_heads=2)(spoil(torch.randn(2, 5, D)))
    assert str(refusal.value).endswith(remedy)


def test_reset_of_one_time_step_needs_its_time_axis():
    with pytest.raises(InputError, match=r"reset must be \[B, T\] with B=3, T=1, got \[3\]. Try reset.unsqueeze\(1\)"):
        make_layer("lstm", D, num_heads=1)(torch.randn(3, 1, D), None, torch.ones(3, dtype=torch.bool))


def test_layers_without_lengths_can_be_wrapped():
    class Theirs(nn.Module):
        def forward(self, x, state=None, reset=None):
            return x, ()

        def initial_state(self, batch_size):
            return ()

    y, _ = WithShortConvolution(Theirs(), D)(torch.randn(2, 4, D))
    assert y.shape == (2, 4, D)


def test_within_is_the_mask_of_lengths():
    lengths = torch.tensor([0, 2, 5])
    assert torch.equal(valid_steps(lengths, 5).sum(1), lengths)
