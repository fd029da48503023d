"""Checks of layers, one per guarantee. Each takes `make`, a function that builds a layer for D = 16."""

import copy
import pickle
import re
from collections.abc import Callable
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from fastweights.core.errors import InputError
from fastweights.core.padding import mask_steps, valid_steps
from fastweights.testing.tolerance import error, tolerance

Make = Callable[[], nn.Module]
B, T, D = 3, 21, 16


def layer_and_input(make: Make) -> tuple[nn.Module, Tensor]:
    """A layer in float64 and evaluation mode with fixed weights, and its input."""
    torch.manual_seed(0)
    return make().double().eval(), torch.randn(B, T, D, dtype=torch.float64)


def assert_equal(got: Any, want: Any, context: str = "") -> None:
    """The same tensors, up to the tolerance of float64."""
    for x, y in zip(tree_leaves(got), tree_leaves(want), strict=True):
        off = error(x, y)
        assert off <= tolerance(torch.float64).forward, f"off by {off:.1e} {context}"


def check_has_the_interface(make: Make) -> None:
    """The output is `[B, T, D]`. Tensors of the state have the batch axis first, and their shapes do not change."""
    layer, x = layer_and_input(make)
    y, state = layer(x)
    initial = layer.initial_state(B)  # type: ignore[operator]
    assert y.shape == x.shape, f"y is {list(y.shape)}"
    assert [s.shape for s in tree_leaves(state)] == [s.shape for s in tree_leaves(initial)], "the state changes shape"
    assert all(len(leaf) == B for leaf in tree_leaves(state)), "a leaf of the state has another batch"
    assert hasattr(state, "_fields"), "the state is not a NamedTuple"


def check_no_state_is_the_initial_state(make: Make) -> None:
    """`None` and `initial_state` mean the same."""
    layer, x = layer_and_input(make)
    assert_equal(layer(x, layer.initial_state(B)), layer(x))  # type: ignore[operator]


def check_state_can_be_detached_moved_and_selected(make: Make) -> None:
    """`detach`, `to` and `select` work, and selected members continue unchanged."""
    layer, x = layer_and_input(make)
    _, state = layer(x.requires_grad_())
    detached = state.detach()
    assert not any(leaf.requires_grad for leaf in tree_leaves(detached)), "a leaf has a history after detach()"
    narrow = tree_leaves(detached.to(torch.float32))
    assert all(leaf.dtype == torch.float32 for leaf in narrow if leaf.is_floating_point()), "to(dtype) left a leaf"
    after, _ = layer(x, detached)
    picked, _ = layer(x[[2, 0, 2]], detached.select([2, 0, 2]))
    assert_equal(picked, after[[2, 0, 2]], "after select()")


def check_whole_equals_split_and_streamed(make: Make) -> None:
    """A sequence in one call equals the same sequence in several calls with a carried state, for every split."""
    layer, x = layer_and_input(make)
    for cuts in ([0, 1, T], [0, 16, T], range(T + 1)):
        state, outputs = None, []
        for start, stop in pairwise(cuts):
            y, state = layer(x[:, start:stop], state)
            outputs.append(y)
        assert_equal((torch.cat(outputs, dim=1), state), layer(x), f"cut at {list(cuts)}")


def check_long_stream_stays_finite(make: Make) -> None:
    """After 2,000 steps the state has its initial size, and state and outputs are finite."""
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
    """A reset before step t equals a new sequence from t. Each member of a batch has its own resets."""
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


def check_packed_gradients_equal_separate(make: Make) -> None:
    """Gradients of a packed sequence equal those of separate sequences, for inputs and all parameters."""
    layer, x = layer_and_input(make)
    leaves = [x.requires_grad_(), *layer.parameters()]
    cuts = [0, 7, 8, T]
    reset = torch.zeros(B, T, dtype=torch.bool)
    reset[:, cuts[1:-1]] = True
    alone = torch.cat([layer(x[:, start:stop])[0] for start, stop in pairwise(cuts)], dim=1)
    packed, _ = layer(x, None, reset)
    assert_equal(_gradients(packed, leaves), _gradients(alone, leaves), "in a gradient")


def _gradients(y: Tensor, leaves: list[Tensor]) -> tuple[Tensor, ...]:
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype, device="cpu").to(y)
    return torch.autograd.grad((y * weight).sum(), leaves, materialize_grads=True)


def check_padded_equals_members(make: Make) -> None:
    """Each member of a padded batch equals the member without padding: outputs, last state, gradients.

    Members have no step, some, and all, resets in them and in their padding. Padding holds NaN; there y and the
    gradient are exactly 0. A call cut in two, each part with what is left of the lengths, gives the same.
    """
    layer, _ = layer_and_input(make)
    ends, x = [0, 9, T - 1, T], torch.randn(4, T, D, dtype=torch.float64)
    _, state = layer(torch.randn_like(x))
    state, lengths, reset = state.detach(), torch.tensor(ends), torch.zeros(4, T, dtype=torch.bool)
    reset[:, [4, 15]] = True
    valid = valid_steps(lengths, T)
    x = mask_steps(valid, x, float("nan")).requires_grad_()
    y, last = layer(x, state, reset, lengths)
    assert (y[~valid] == 0).all(), "y is not 0 in the padding"
    outputs = [torch.zeros_like(y[:1])]
    assert_equal(last.select(0), state.select(0), "in the state of a member of no step")
    for b, end in enumerate(ends[1:], start=1):
        alone, after = layer(x[b : b + 1, :end], state.select(b), reset[b : b + 1, :end])
        assert_equal(last.select(b), after, f"in the state after {end} steps")
        outputs.append(nn.functional.pad(alone, (0, 0, 0, T - end)))
    leaves = [x, *layer.parameters()]
    got, want = (_gradients(out, leaves) for out in (y, torch.cat(outputs)))
    assert_equal((y, got), (torch.cat(outputs), want))
    assert (got[0][~valid] == 0).all(), "padding has a gradient"
    first, middle = layer(x[:, :10], state, reset[:, :10], lengths.clamp(max=10))
    second, end_state = layer(x[:, 10:], middle, reset[:, 10:], (lengths - 10).clamp(min=0))
    assert_equal((torch.cat([first, second], dim=1), end_state), (y, last), "when the call is cut in two")


def check_batch_equals_members(make: Make) -> None:
    """The results of a member do not depend on the rest of the batch."""
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
    """Input, parameters and initial state get a finite gradient other than 0. Integer tensors have none."""
    layer, x = layer_and_input(make)
    _, state = layer(torch.randn_like(x))
    state = tree_map(lambda s: s.detach().requires_grad_(s.is_floating_point()), state)
    cell: Any = getattr(layer, "cell", None)
    slots = cell.slots["State"] if cell else {}
    for name in (name for name, slot in slots.items() if slot.kind == "count"):
        getattr(state, name).requires_grad_(False)
    leaves = [x.requires_grad_(), *(s for s in tree_leaves(state) if s.requires_grad), *layer.parameters()]
    # One member is reset: a learned initial state has its gradient from there.
    reset = torch.zeros(B, T, dtype=torch.bool)
    reset[1, 7] = True
    y, _ = layer(x, state, reset)
    for leaf, gradient in zip(leaves, torch.autograd.grad(y.square().sum(), leaves, allow_unused=True), strict=True):
        assert gradient is not None, f"no gradient to a tensor of shape {list(leaf.shape)}"
        assert gradient.isfinite().all(), f"a gradient is not finite, shape {list(leaf.shape)}"
        assert gradient.abs().max() > 0, f"the gradient is 0, shape {list(leaf.shape)}"


def check_state_dict_is_complete(make: Make) -> None:
    """The `state_dict` contains everything that determines the outputs of a layer."""
    layer, x = layer_and_input(make)
    other = make().double().eval()
    other.load_state_dict(layer.state_dict())
    assert_equal(other(x), layer(x))


def check_is_initialised_by_reset_parameters(make: Make) -> None:
    """`reset_parameters()` of all modules initialises every parameter and buffer as the constructor does.

    Deferred initialisation depends on it: a layer made on the meta device has no numbers behind `to_empty()`.
    """
    made, again, empty = make(), make(), emptied(make)
    for module in (again, empty):
        torch.manual_seed(1)
        initialise_again(module)
    triples = zip(tensors_of(made).items(), tensors_of(again).values(), tensors_of(empty).values(), strict=True)
    for (name, want), same, got in triples:
        assert torch.equal(got, same), f"{name} depends on its previous values"
        assert_same_distribution(name, got, want)


def emptied(make: Make) -> nn.Module:
    """A module created on the meta device, with NaN in all parameters and buffers."""
    with torch.device("meta"):
        module = make()
    module.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in tensors_of(module).values():
            tensor.fill_(torch.nan if tensor.is_floating_point() else 99)
    return module


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name."""
    return dict([*module.named_parameters(), *module.named_buffers()])


def initialise_again(module: nn.Module) -> None:
    """Calls `reset_parameters()` of every module that has it, as trainers do after `to_empty()`."""
    for part in module.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()  # type: ignore[operator]


def assert_same_distribution(name: str, got: Tensor, want: Tensor) -> None:
    """Constant tensors are equal; others have means and standard deviations within six standard errors.

    Of fewer than 16 random numbers little is known: they are finite.
    """
    got, want, n = got.double(), want.double(), want.numel()
    if n > 1 and want.std() == 0:
        assert torch.equal(got, want), f"{name} differs from that of a new module"
        return
    assert got.isfinite().all(), f"{name} is not finite"
    if n < 16:
        return
    off = (got.mean() - want.mean()).abs() / want.std()
    assert off <= 6 * (2 / n) ** 0.5, f"the mean of {name} is off by {off:.2g} deviations"
    ratio = (got.std() / want.std()).log().abs()
    assert ratio <= 6 * n**-0.5, f"the standard deviation of {name} differs"


def check_calls_its_linear_maps(make: Make) -> None:
    """Hooks on all `nn.Linear` modules are called."""
    layer, x = layer_and_input(make)
    called: set[nn.Module] = set()
    linears = {name: part for name, part in layer.named_modules() if isinstance(part, nn.Linear)}
    for part in linears.values():
        part.register_forward_hook(lambda module, *_: called.add(module))
    layer(x)
    unused = [name for name, part in linears.items() if part not in called]
    assert not unused, f"no call of {', '.join(unused)}: are weights read instead?"


class Adapted(nn.Module):
    """f(x) + A f(x), as an adapter (LoRA) wraps a linear map or an embedding. It has no attribute `weight`."""

    def __init__(self, wrapped: nn.Linear | nn.Embedding) -> None:
        super().__init__()
        self.wrapped = wrapped
        size = len(wrapped.weight) if isinstance(wrapped, nn.Linear) else wrapped.embedding_dim
        self.A = nn.Parameter(torch.randn(size, size).to(wrapped.weight))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.wrapped(x)
        return y + y @ self.A


def adapted(module: nn.Module, name: str) -> tuple[nn.Module, nn.Parameter]:
    """A copy of a module whose submodule of this name is wrapped, and the parameter of the adapter."""
    other = copy.deepcopy(module)
    parent, _, own = name.rpartition(".")
    adapter = Adapted(other.get_submodule(name))  # type: ignore[arg-type]
    setattr(other.get_submodule(parent), own, adapter)
    return other, adapter.A


def check_linear_maps_can_be_adapted(make: Make) -> None:
    """Each `nn.Linear` module can be replaced by another module: it changes y and the gradients reach it."""
    layer, x = layer_and_input(make)
    before, _ = layer(x)
    for name in [name for name, part in layer.named_modules() if isinstance(part, nn.Linear)]:
        other, A = adapted(layer, name)
        y, state = other(x)
        assert not torch.allclose(y, before), f"{name} has no effect"
        y, _ = other(x, tree_map(Tensor.detach, state))
        y.square().sum().backward()
        assert A.grad is not None, f"no gradient to {name}"
        assert A.grad.abs().max() > 0, f"the gradient to {name} is 0"


def check_can_be_pickled_and_copied(make: Make) -> None:
    """A layer and its state survive `pickle` and `copy.deepcopy`."""
    layer, x = layer_and_input(make)
    want = layer(x)
    state = tree_map(Tensor.detach, want[1])
    for again, carried in (pickle.loads(pickle.dumps((layer, state))), copy.deepcopy((layer, state))):
        assert type(carried) is type(state), f"the state is a {type(carried).__name__}"
        assert_equal((again(x), carried), (want, state))


def check_state_can_be_saved_and_loaded(make: Make) -> None:
    """A state that was saved and loaded continues a sequence bit-identically."""
    layer, x = layer_and_input(make)
    _, state = layer(x)
    with TemporaryDirectory() as folder:
        state.save(f"{folder}/state.safetensors")
        loaded = layer.initial_state(1).load(f"{folder}/state.safetensors")  # type: ignore[operator]
    assert type(loaded) is type(state), f"the state is a {type(loaded).__name__}"
    for leaf, expected in zip(tree_leaves(loaded), tree_leaves(state), strict=True):
        assert torch.equal(leaf, expected), "a value of the state differs"
    assert all(map(torch.equal, tree_leaves(layer(x, loaded)), tree_leaves(layer(x, state)))), (
        "the loaded state continues differently"
    )


def check_runs_in_bfloat16(make: Make) -> None:
    """Half precision parameters and inputs give finite half precision outputs."""
    layer, x = layer_and_input(make)
    y, state = layer.bfloat16()(x.bfloat16())
    y, _ = layer(x.bfloat16(), state)
    assert y.dtype == torch.bfloat16, f"y is {y.dtype}"
    assert y.isfinite().all(), "y is not finite"


def check_state_keeps_its_dtype(make: Make) -> None:
    """A state has the dtypes of `initial_state`, also in half precision. Under autocast they are at least float32."""
    for dtype in (torch.float32, torch.bfloat16):
        layer = make().to(dtype).eval()
        x = torch.randn(B, T, D, dtype=dtype)
        expected = [leaf.dtype for leaf in tree_leaves(layer.initial_state(B))]  # type: ignore[operator]
        for enabled in (False, True):
            with torch.autocast(x.device.type, torch.bfloat16, enabled=enabled):
                _, state = layer(x)
                _, again = layer(x, state)
            got = [[leaf.dtype for leaf in tree_leaves(s)] for s in (state, again)]
            assert got == [expected, expected], f"{got} is not {expected} with autocast {enabled}, in {dtype}"
        narrow = {torch.bfloat16, torch.float16} & {*expected}
        assert dtype != torch.float32 or not narrow, f"a state is kept in {narrow}"


def check_gradients_flow_over_several_calls(make: Make) -> None:
    """Gradients flow back through several calls, also if each call draws new random numbers."""
    layer, x = layer_and_input(make)
    first, state = layer.train()(x.requires_grad_()[:, :9])
    second, _ = layer(x[:, 9:], state)
    (first.sum() + second.sum()).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters()), "a gradient is not finite"


def check_stays_on_its_device(make: Make) -> None:
    """Results are on the device of the inputs, not on the default device."""
    layer, x = layer_and_input(make)
    want = layer(x)
    with torch.device("meta"):
        got = layer(x.requires_grad_())
        got[0].sum().backward()
        with torch.no_grad():
            step, _ = layer(x[:, :1], layer.initial_state(B))  # type: ignore[operator]
    assert_equal((got, step), (want, want[0][:, :1]))


def check_runs_on_meta_tensors(make: Make) -> None:
    """A layer computes output shapes on the meta device, with resets and lengths."""
    layer, x = layer_and_input(make)
    layer, x = layer.to("meta"), x[:, :3].to("meta")
    marks = torch.zeros(x.shape[:2], dtype=torch.bool, device="meta"), torch.zeros(B, dtype=torch.long, device="meta")
    initial = layer.initial_state(B)  # type: ignore[operator]
    for arguments in ((None,), (initial,), (initial, *marks)):
        y, state = layer(x, *arguments)
        assert (y.is_meta, y.shape) == (True, x.shape), f"y is {list(y.shape)} on {y.device}"
        assert [s.shape for s in tree_leaves(state)] == [s.shape for s in tree_leaves(initial)], (
            "the state changes shape"
        )


def check_bad_input_is_refused(make: Make) -> None:
    """Invalid inputs raise an `InputError`: one line with the requirement and the value."""
    layer, x = layer_and_input(make)
    bad: dict[str, Any] = {
        "another D": x[..., :-1],
        "no step": x[:, :0],
        "a missing axis": x[0],
        "a list": x.tolist(),
        "another precision": x.float(),
        "integers": x.long(),
        "bools": x > 0,
        "complex numbers": x.to(torch.complex128),
        "eight bits": x.to(torch.float8_e4m3fn),
        "a sparse tensor": x.to_sparse(),
        "another device": x.to("meta"),
    }
    for name, arguments in bad.items():
        _assert_refused(layer, name, arguments)
    if list(layer.parameters()):
        eight = torch.float8_e4m3fn
        _assert_refused(copy.deepcopy(layer).to(eight), "a layer in eight bits", x.to(eight))


def check_invalid_states_and_marks_are_refused(make: Make) -> None:
    """States, resets, lengths and controls of another type, batch, shape, dtype or device raise an `InputError`."""
    layer, x = layer_and_input(make)
    state = layer.initial_state(B)  # type: ignore[operator]
    reset, lengths = torch.zeros(B, T, dtype=torch.bool), torch.full((B,), T)
    bad: dict[str, tuple[Any, ...]] = {
        "a state of another kind": ([state],),
        "a shorter reset": (None, reset[:, 1:]),
        "a reset of numbers": (None, reset.double()),
        "a reset of members": (None, reset[:, 0]),
        "a list of resets": (None, reset.tolist()),
        "a reset on another device": (None, reset.to("meta")),
        "lengths of another batch": (None, None, lengths[1:]),
        "lengths of numbers": (None, None, lengths.double()),
        "a list of lengths": (None, None, lengths.tolist()),
        "a mask for lengths": (None, None, reset),
        "lengths beyond the end": (None, None, lengths + 1),
        "negative lengths": (None, None, lengths - T - 1),
        "lengths on another device": (None, None, lengths.to("meta")),
        "a control that no layer has": (None, None, None, {"unknown": reset}),
    }
    if tree_leaves(state):  # a layer without a state has none of another batch
        bad |= {
            "a state of another batch": (layer.initial_state(B + 1),),  # type: ignore[operator]
            "a state of bools": (tree_map(torch.Tensor.bool, state),),
            "a state of other integers": (tree_map(torch.Tensor.short, state),),
            "a state on another device": (state.to("meta"),),
        }
    for name, arguments in bad.items():
        _assert_refused(layer, name, x, *arguments)


def _assert_refused(layer: nn.Module, name: str, *arguments: Any) -> None:
    try:
        layer(*arguments)
    except InputError as error:
        message = str(error)
    else:
        raise AssertionError(f"{name}: accepted")
    assert re.fullmatch(r"\S+ must be .*, got .*", message), f"{name}: unclear: {message}"
