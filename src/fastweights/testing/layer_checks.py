"""What every layer guarantees: one check a guarantee, each a function of `make`, which builds a layer for D = 16."""

import copy
import pickle
from collections.abc import Callable
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from fastweights.errors import InputError
from fastweights.testing.tolerance import error, tolerance

Make = Callable[[], nn.Module]
B, T, D = 3, 21, 16


def layer_and_input(make: Make) -> tuple[nn.Module, Tensor]:
    """A layer in float64 and evaluation mode, always the same, and its input."""
    torch.manual_seed(0)
    return make().double().eval(), torch.randn(B, T, D, dtype=torch.float64)


def assert_equal(got: Any, want: Any, context: str = "") -> None:
    """The same tensors, up to the tolerance of float64."""
    for mine, theirs in zip(tree_leaves(got), tree_leaves(want), strict=True):
        off = error(mine, theirs)
        assert off <= tolerance(torch.float64).forward, f"off by {off:.1e} {context}"


def check_has_the_interface(make: Make) -> None:
    """y is [B, T, D]; every leaf of a state has the batch first, and its shape stays the same."""
    layer, x = layer_and_input(make)
    y, state = layer(x)
    initial = layer.initial_state(B)  # type: ignore[operator]
    assert y.shape == x.shape, f"y is {list(y.shape)}"
    assert [s.shape for s in tree_leaves(state)] == [s.shape for s in tree_leaves(initial)], "the state changes shape"
    assert all(len(leaf) == B for leaf in tree_leaves(state)), "a leaf of the state has another batch"
    assert hasattr(state, "_fields"), "the state is no NamedTuple"


def check_no_state_is_the_initial_state(make: Make) -> None:
    """`None` and `initial_state` mean the same."""
    layer, x = layer_and_input(make)
    assert_equal(layer(x, layer.initial_state(B)), layer(x))  # type: ignore[operator]


def check_state_can_be_detached_moved_and_picked_from(make: Make) -> None:
    """`detach`, `to` and `members` work, and those that `members` picks go on as they would have."""
    layer, x = layer_and_input(make)
    _, state = layer(x.requires_grad_())
    detached = state.detach()
    assert not any(leaf.requires_grad for leaf in tree_leaves(detached)), "a leaf has a history after detach()"
    narrow = tree_leaves(detached.to(torch.float32))
    assert all(leaf.dtype == torch.float32 for leaf in narrow if leaf.is_floating_point()), "to(dtype) left a leaf"
    after, _ = layer(x, detached)
    picked, _ = layer(x[[2, 0, 2]], detached.members([2, 0, 2]))
    assert_equal(picked, after[[2, 0, 2]], "after members()")


def check_whole_equals_split_and_streamed(make: Make) -> None:
    """Cutting the sequence anywhere and handing on the state changes nothing."""
    layer, x = layer_and_input(make)
    for cuts in ([0, 1, T], [0, 16, T], range(T + 1)):
        state, outputs = None, []
        for start, stop in pairwise(cuts):
            y, state = layer(x[:, start:stop], state)
            outputs.append(y)
        assert_equal((torch.cat(outputs, dim=1), state), layer(x), f"cut at {list(cuts)}")


def check_long_stream_stays_finite(make: Make) -> None:
    """After 2000 steps the state has the size that it had, and only finite numbers; so have the outputs."""
    layer, _ = layer_and_input(make)
    x = torch.randn(1, 2000, D, dtype=torch.float64)
    with torch.no_grad():
        y, state = layer(x)
        for t in range(10):
            last, state = layer(x[:, t : t + 1], state)
    assert torch.cat([y, last], dim=1).isfinite().all(), "an output is not finite"
    for leaf, first in zip(tree_leaves(state), tree_leaves(layer.initial_state(1)), strict=True):  # type: ignore[operator]
        assert leaf.shape == first.shape, "the state grows"
        assert leaf.isfinite().all(), "the state is not finite"


def check_packed_equals_separate(make: Make) -> None:
    """A reset before step t gives what a new sequence from t gives; members of a batch are reset on their own."""
    layer, x = layer_and_input(make)
    _, dirty = layer(torch.randn_like(x))
    reset = torch.zeros(B, T, dtype=torch.bool)
    reset[:, 0] = True
    reset[1, 7] = True
    reset[2, 7:9] = True
    y, state = layer(x, dirty, reset)
    for b, cuts in enumerate([[0, T], [0, 7, T], [0, 7, 8, T]]):
        alone = [layer(x[b : b + 1, start:stop]) for start, stop in pairwise(cuts)]
        assert_equal(y[b : b + 1], torch.cat([part for part, _ in alone], dim=1), f"for cuts {cuts}")
    again, _ = layer(x, state)
    alone_again, _ = layer(x[2:], alone[-1][1])
    assert_equal(again[2:], alone_again, "after the last step")


def check_batch_equals_members(make: Make) -> None:
    """A member of a batch gives what it gives alone."""
    layer, x = layer_and_input(make)
    y, _ = layer(x)
    for b in range(B):
        assert_equal(y[b : b + 1], layer(x[b : b + 1])[0], f"for member {b}")


def check_is_causal(make: Make) -> None:
    """No output depends on a later input."""
    layer, x = layer_and_input(make)
    changed = torch.cat([x[:, :11], torch.randn(B, T - 11, D, dtype=x.dtype)], dim=1)
    assert_equal(layer(changed)[0][:, :11], layer(x)[0][:, :11])


def check_gradients_reach_everything(make: Make) -> None:
    """Input, every parameter and the state that was given get a finite gradient that is not 0."""
    layer, x = layer_and_input(make)
    _, state = layer(torch.randn_like(x))
    state = tree_map(lambda s: s.detach().requires_grad_(s.is_floating_point()), state)
    leaves = [x.requires_grad_(), *(s for s in tree_leaves(state) if s.requires_grad), *layer.parameters()]
    y, _ = layer(x, state)
    for leaf, gradient in zip(leaves, torch.autograd.grad(y.square().sum(), leaves, allow_unused=True), strict=True):
        assert gradient is not None, f"no gradient to a tensor of shape {list(leaf.shape)}"
        assert gradient.isfinite().all(), f"a gradient is not finite, shape {list(leaf.shape)}"
        assert gradient.abs().max() > 0, f"the gradient is 0, shape {list(leaf.shape)}"


def check_saved_and_loaded_is_the_same(make: Make) -> None:
    """All that a layer computes with is in its `state_dict`."""
    layer, x = layer_and_input(make)
    other = make().double().eval()
    other.load_state_dict(layer.state_dict())
    assert_equal(other(x), layer(x))


def check_is_pickled_and_copied(make: Make) -> None:
    """The whole layer, with a state: what a spawned worker is given, and what `copy.deepcopy` makes."""
    layer, x = layer_and_input(make)
    want = layer(x)
    state = tree_map(Tensor.detach, want[1])
    for again, carried in (pickle.loads(pickle.dumps((layer, state))), copy.deepcopy((layer, state))):
        assert type(carried) is type(state), f"the state is a {type(carried).__name__}"
        assert_equal((again(x), carried), (want, state))


def check_state_is_saved_and_loaded(make: Make) -> None:
    """A state goes through a file and on as if nothing had happened, to the same bits."""
    layer, x = layer_and_input(make)
    _, state = layer(x)
    with TemporaryDirectory() as folder:
        state.save(f"{folder}/state.safetensors")
        loaded = layer.initial_state(1).load(f"{folder}/state.safetensors")  # type: ignore[operator]
    assert type(loaded) is type(state), f"the state is a {type(loaded).__name__}"
    for mine, theirs in zip(tree_leaves(loaded), tree_leaves(state), strict=True):
        assert torch.equal(mine, theirs), "a number has changed"
    assert all(map(torch.equal, tree_leaves(layer(x, loaded)), tree_leaves(layer(x, state)))), "it goes on elsewhere"


def check_runs_in_bfloat16(make: Make) -> None:
    """Half precision parameters and inputs give finite half precision outputs."""
    layer, x = layer_and_input(make)
    y, state = layer.bfloat16()(x.bfloat16())
    y, _ = layer(x.bfloat16(), state)
    assert y.dtype == torch.bfloat16, f"y is {y.dtype}"
    assert y.isfinite().all(), "y is not finite"


def check_bad_input_is_refused(make: Make) -> None:
    """Another D, no step, a missing axis: `InputError`."""
    layer, x = layer_and_input(make)
    for bad in (x[..., :-1], x[:, :0], x[0]):
        try:
            layer(bad)
        except InputError:
            continue
        raise AssertionError(f"x of shape {list(bad.shape)} is accepted")


def check_state_and_reset_that_do_not_fit_are_refused(make: Make) -> None:
    """The state of another batch or kind, resets of another shape or dtype: `InputError`."""
    layer, x = layer_and_input(make)
    state = layer.initial_state(B + 1)  # type: ignore[operator]
    reset = torch.zeros(B, T, dtype=torch.bool)
    calls = [(x, (x,)), (x, None, reset[:, 1:]), (x, None, reset.double())]
    # A layer without a state has none of another batch.
    for bad in [(x, state), *calls] if tree_leaves(state) else calls:
        try:
            layer(*bad)
        except InputError:
            continue
        raise AssertionError(f"accepted: {bad[1:]}")
