"""Checks of scans, one per guarantee. Each takes a cell and a backend and runs on the default device.

A check raises AssertionError. `fastweights.testing.tolerance` has the bounds of comparisons with float64.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import checkpoint

from fastweights.cell import Cell
from fastweights.core.errors import InputError
from fastweights.core.padding import can_be_read, mask_steps, valid_steps
from fastweights.dispatch import scan
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_reset, sample_state
from fastweights.testing.tolerance import error, tolerance

ODD = Shape(2, 37, 3, 5, 4)
# Every pair of a shape and a dtype is one build of a kernel. A vector has twice as many float32 numbers as float64
# numbers, so that sizes below, at, and above the width of a vector are distributed over the two, with ODD in both.
SHAPES = {
    torch.float64: (Shape(1, 1, 1, 2, 3), ODD, Shape(1, 50, 1, 33, 100)),
    torch.float32: (
        ODD,
        Shape(1, 64, 2, 16, 16),
        Shape(3, 7, 1, 24, 2),
        # Nine steps: five steps after a reset, two updates of a self-referential matrix may cancel to less than the
        # precision of float32, on some CPUs.
        Shape(1, 9, 1, 2, 256),
        Shape(1, 9, 1, 256, 2),
    ),
}
EXTREME = ("rate", "decay", "control")
"""Kinds of inputs that may be exactly 0 and exactly 1."""
# The reference is a loop over time, so that nine steps of it are as good as 37. Other backends have chunks of steps.
OF_LOOP = ODD._replace(T=9)
# Few steps, for checks that are slow per step. The sizes of a head are those of ODD, whose kernels exist already.
BRIEF = Shape(2, 3, 2, 5, 4)
# A tracer unrolls a loop. Two steps suffice: the second continues from a state, like all later ones.
UNROLLED = BRIEF._replace(T=2)


class Arguments(NamedTuple):
    """The arguments of `scan`."""

    inputs: Any
    state: Any
    params: Any
    reset: Tensor | None
    lengths: Tensor | None = None
    initial_state: Any = None

    def to(self, dtype: torch.dtype) -> "Arguments":
        """Inputs and params in another dtype; states are never narrower than float32."""
        wide = torch.promote_types(dtype, torch.float32)
        dtypes = {"inputs": dtype, "params": dtype, "state": wide, "initial_state": wide}
        return self._replace(**{part: _cast(getattr(self, part), to) for part, to in dtypes.items()})


def arguments(cell: Cell, shape: Shape, dtype: torch.dtype = torch.float64) -> Arguments:
    """A sample with a state and resets."""
    sample = (sample_inputs(cell, shape), sample_state(cell, shape), sample_params(cell, shape), sample_reset(shape))
    return Arguments(*sample).to(dtype)


def long_shape(backend: str) -> Shape:
    """A shape of several chunks, and of fewer steps for the reference, which has no chunks."""
    return OF_LOOP if backend == "reference" else ODD


def long_arguments(cell: Cell, backend: str, dtype: torch.dtype = torch.float64) -> Arguments:
    """A sample of several chunks with a state and resets."""
    return arguments(cell, long_shape(backend), dtype)


def run(cell: Cell, backend: str, a: Arguments) -> tuple[Tensor, Any]:
    """Runs a scan; returns y and the last state."""
    return scan(cell, *a, backend=backend)


def leaves(a: Arguments) -> dict[str, Tensor]:
    """The tensors that may have a gradient, by name."""
    records = {part: getattr(a, part) for part in ("inputs", "state", "params", "initial_state")}
    return {
        f"{part}.{name}": leaf
        for part, record in records.items()
        if record is not None
        for name, leaf in zip(record._fields, record, strict=True)
    }


def with_gradients(a: Arguments) -> Arguments:
    """The same numbers in tensors that require gradients."""
    return tree_map_only(Tensor, lambda x: x.detach().requires_grad_(x.is_floating_point()), a)


def results_and_gradients(cell: Cell, backend: str, a: Arguments) -> dict[str, Tensor]:
    """y, the last state, and the gradients of a random projection of both with respect to all arguments."""
    a = with_gradients(a)
    outputs = _outputs(*run(cell, backend, a))
    return outputs | gradients(outputs, a)


def gradients(outputs: dict[str, Tensor], a: Arguments) -> dict[str, Tensor]:
    """The gradients of a random projection of the outputs, by the name of the tensor."""
    generator = torch.Generator().manual_seed(4)
    # Numbers that are exact in every dtype, so that incoming gradients have no rounding errors.
    random = {n: torch.randn(out.shape, generator=generator, device="cpu") for n, out in outputs.items()}
    weights = [random[n].bfloat16().double().to(out.device) for n, out in outputs.items()]
    total = torch.stack([(out.double() * w).sum() for out, w in zip(outputs.values(), weights, strict=True)])
    named = leaves(a)
    results = torch.autograd.grad(total.sum(), list(named.values()), materialize_grads=True)
    return {f"gradient of {name}": gradient for name, gradient in zip(named, results, strict=True)}


def assert_close(got: dict[str, Tensor], want: dict[str, Tensor], dtype: torch.dtype, context: object = "") -> None:
    """Asserts that all tensors are within the tolerance of a dtype, and gradients within that of gradients.

    The error of a gradient is relative to at least a hundredth of the longest gradient. The terms of a short gradient
    cancel, and below double precision its digits are their rounding errors.
    """
    is_gradient = {name: name.startswith("gradient") for name in got}
    lengths = [want[name].double().norm().item() for name in got if is_gradient[name]]
    least = 0.0 if dtype == torch.float64 else max(lengths, default=0.0) / 100
    for name, tensor in got.items():
        bound = tolerance(dtype).gradient if is_gradient[name] else tolerance(dtype).forward
        off = error(tensor, want[name], least if is_gradient[name] else 0.0)
        assert off <= bound, f"{name} is off by {off:.1e}, more than {bound:.0e} {context}"


def _cast(record: Any, dtype: torch.dtype) -> Any:
    return tree_map_only(Tensor, lambda x: x.detach().to(dtype), record)


def _outputs(y: Tensor, state: Any) -> dict[str, Tensor]:
    return {"y": y, **{f"last {name}": leaf for name, leaf in zip(state._fields, state, strict=True)}}


def check_float64_equals_reference(cell: Cell, backend: str, shapes: Sequence[Shape] = SHAPES[torch.float64]) -> None:
    """Results and gradients at some shapes, with resets and a state, against the reference."""
    _check_equals_reference(cell, backend, torch.float64, shapes)


def check_float32_equals_reference(cell: Cell, backend: str, shapes: Sequence[Shape] = SHAPES[torch.float32]) -> None:
    """Results and gradients at some shapes, against the float64 reference."""
    _check_equals_reference(cell, backend, torch.float32, shapes)


def check_bfloat16_equals_reference(cell: Cell, backend: str, shapes: Sequence[Shape] = SHAPES[torch.float32]) -> None:
    """Inputs in bfloat16 and sums in float32, against the float64 reference of the same inputs."""
    _check_equals_reference(cell, backend, torch.bfloat16, shapes)


def _check_equals_reference(cell: Cell, backend: str, dtype: torch.dtype, shapes: Sequence[Shape]) -> None:
    for shape in shapes:
        got = results_and_gradients(cell, backend, arguments(cell, shape, dtype))
        assert_close(got, _of_reference(cell.key, shape, dtype), dtype, f"at {shape}")


@lru_cache(maxsize=3 * max(map(len, SHAPES.values())))
def _of_reference(key: str, shape: Shape, dtype: torch.dtype) -> dict[str, Tensor]:
    """Float64 results of the reference for inputs of a dtype. The cache serves all backends of a cell."""
    cell = Cell.of_key(key)
    return results_and_gradients(cell, "reference", arguments(cell, shape, dtype).to(torch.float64))


def check_rates_of_zero_and_one(cell: Cell, backend: str) -> None:
    """Rates and decays exactly 0 and exactly 1, alone and mixed."""
    for zeros in (0.0, 0.5, 1.0):
        shape = long_shape(backend)
        got = results_and_gradients(cell, backend, _with_extreme_rates(cell, shape, zeros).to(torch.float32))
        assert_close(got, _of_reference_at_extreme_rates(cell.key, shape, zeros), torch.float32)


@lru_cache(maxsize=6)
def _of_reference_at_extreme_rates(key: str, shape: Shape, zeros: float) -> dict[str, Tensor]:
    """Float64 results of the reference. The cache serves all backends of a cell."""
    cell = Cell.of_key(key)
    return results_and_gradients(cell, "reference", _with_extreme_rates(cell, shape, zeros))


def _with_extreme_rates(cell: Cell, shape: Shape, zeros: float) -> Arguments:
    """A sample whose rates, decays and controls are 0 with the probability `zeros`, and 1 otherwise."""
    a, generator = arguments(cell, shape), torch.Generator().manual_seed(6)
    extreme = [
        (torch.rand(x.shape, generator=generator, device="cpu") >= zeros).to(x) if slot.kind in EXTREME else x
        for x, slot in zip(a.inputs, cell.slots["Inputs"].values(), strict=True)
    ]
    return a._replace(inputs=type(a.inputs)(*extreme))


def check_whole_equals_split(cell: Cell, backend: str) -> None:
    """Two calls that pass on the state equal one call, for every cut."""
    a = arguments(cell, ODD)
    want = _outputs(*run(cell, backend, a))
    for cut in (1, 16, 31, 32, 36):
        first, state = run(cell, backend, _time(a, 0, cut))
        second, state = run(cell, backend, _time(a, cut, ODD.T)._replace(state=state))
        assert_close(_outputs(torch.cat([first, second], dim=1), state), want, torch.float64, f"cut at {cut}")


def check_whole_equals_streamed(cell: Cell, backend: str) -> None:
    """One call per step equals one call."""
    a = long_arguments(cell, backend)
    state, outputs = a.state, []
    for t in range(a.inputs[0].shape[1]):
        y, state = run(cell, backend, _time(a, t, t + 1)._replace(state=state))
        outputs.append(y)
    assert_close(_outputs(torch.cat(outputs, dim=1), state), _outputs(*run(cell, backend, a)), torch.float64)


def check_packed_equals_separate(cell: Cell, backend: str) -> None:
    """Sequences packed into one with resets equal separate sequences."""
    a = arguments(cell, ODD)
    cuts = [0, 1, 9, 32, ODD.T]
    reset = torch.zeros(ODD.B, ODD.T, dtype=torch.bool)
    reset[:, cuts[:-1]] = True
    packed, last = run(cell, backend, a._replace(reset=reset))
    start = tree_map_only(Tensor, torch.zeros_like, a.state)
    alone = [run(cell, backend, _time(a, *cut)._replace(state=start, reset=None)) for cut in pairwise(cuts)]
    want = _outputs(torch.cat([y for y, _ in alone], dim=1), alone[-1][1])
    assert_close(_outputs(packed, last), want, torch.float64)


def check_padded_equals_members(cell: Cell, backend: str) -> None:
    """A padded batch equals its separate members: outputs, last states, gradients, in one call and in two.

    Members have no steps, some, or all. The padding is NaN; its outputs and gradients are exactly 0.
    """
    shape, ends = ODD._replace(B=4, T=20), [0, 7, 19, 20]
    valid = valid_steps(torch.tensor(ends), shape.T)
    a = arguments(cell, shape)._replace(lengths=torch.tensor(ends))
    padded = tree_map_only(Tensor, lambda x: mask_steps(valid, x, float("nan")), a.inputs)
    a = with_gradients(a._replace(inputs=padded))
    outputs = _outputs(*run(cell, backend, a))
    alone = _join([_outputs(*_run_alone(cell, backend, a, b, end, outputs["y"][:1])) for b, end in enumerate(ends)])
    got, want = (out | gradients(out, a) for out in (outputs, alone))
    assert_close(got, want, torch.float64)
    assert (outputs["y"][~valid] == 0).all(), "y is not 0 in the padding"
    for name in a.inputs._fields:
        assert (got[f"gradient of inputs.{name}"][~valid] == 0).all(), f"{name} has a gradient in the padding"
    first, state = run(cell, backend, _time(a, 0, 17))
    second, state = run(cell, backend, _time(a, 17, shape.T)._replace(state=state))
    assert_close(_outputs(torch.cat([first, second], dim=1), state), outputs, torch.float64, "cut in two")


def _run_alone(cell: Cell, backend: str, a: Arguments, b: int, end: int, like: Tensor) -> tuple[Tensor, Any]:
    """The outputs of a member without its padding, followed by zeros as long as `like`, and its last state."""
    inputs, state, reset = (member(part, b) for part in (a.inputs, a.state, a.reset))
    if not end:
        return torch.zeros_like(like), state
    y, state = run(cell, backend, _time(Arguments(inputs, state, a.params, reset), 0, end))
    return torch.cat([y, like.new_zeros(1, like.shape[1] - end, *like.shape[2:])], dim=1), state


def _join(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def check_reset_returns_to_the_initial_state(cell: Cell, backend: str) -> None:
    """A scan without a state starts from `initial_state`, and a reset returns to it. Gradients reach it."""
    initial_state = tree_map_only(Tensor, lambda x: x[0], sample_state(cell, ODD, seed=5))
    reset = torch.zeros(ODD.B, ODD.T, dtype=torch.bool)
    reset[:, [5, 6, 20]] = True
    a = with_gradients(arguments(cell, ODD)._replace(state=None, reset=reset, initial_state=initial_state))
    outputs = _outputs(*run(cell, backend, a))
    start = tree_map_only(Tensor, lambda x: x.expand(ODD.B, *x.shape), a.initial_state)
    cuts = [0, 5, 6, 20, ODD.T]
    alone = [run(cell, backend, _time(a._replace(state=start, reset=None), *cut)) for cut in pairwise(cuts)]
    want = _outputs(torch.cat([y for y, _ in alone], dim=1), alone[-1][1])
    assert_close(outputs | gradients(outputs, a), want | gradients(want, a), torch.float64)
    carried = a._replace(state=sample_state(cell, ODD))
    after, _ = run(cell, backend, carried)
    assert_close({"y": after[:, 5:]}, {"y": outputs["y"][:, 5:]}, torch.float64, "after another state")


def check_reset_clears_a_bad_state(cell: Cell, backend: str) -> None:
    """A reset at the first step removes the passed state, even if it is NaN."""
    a = arguments(cell, ODD)
    reset = torch.zeros(ODD.B, ODD.T, dtype=torch.bool)
    reset[:, 0] = True
    bad = tree_map_only(Tensor, lambda leaf: torch.full_like(leaf, float("nan")), a.state)
    y, _ = run(cell, backend, a._replace(state=bad, reset=reset))
    assert torch.isfinite(y).all(), "a NaN in the state survives a reset"


def check_batch_equals_members(cell: Cell, backend: str) -> None:
    """The results of a member do not depend on the rest of the batch."""
    a = long_arguments(cell, backend)
    y, _ = run(cell, backend, a)
    for b in range(ODD.B):
        inputs, state, reset = (member(part, b) for part in (a.inputs, a.state, a.reset))
        alone, _ = run(cell, backend, Arguments(inputs, state, a.params, reset))
        assert_close({"y": alone}, {"y": y[b : b + 1]}, torch.float64, f"for member {b}")


def check_heads_do_not_mix(cell: Cell, backend: str) -> None:
    """The results of a head do not depend on other heads."""
    a = long_arguments(cell, backend)
    y, _ = run(cell, backend, a)
    inputs = tree_map_only(Tensor, lambda x: x[:, :, 1:2], a.inputs)
    state = tree_map_only(Tensor, lambda x: x[:, 1:2], a.state)
    params = tree_map_only(Tensor, lambda x: x[1:2], a.params)
    alone, _ = run(cell, backend, Arguments(inputs, state, params, a.reset))
    assert_close({"y": alone}, {"y": y[:, :, 1:2]}, torch.float64)


def check_is_causal(cell: Cell, backend: str) -> None:
    """No output depends on a later input."""
    a, other = long_arguments(cell, backend), sample_inputs(cell, ODD, seed=9)
    before, _ = run(cell, backend, a)
    T = before.shape[1]
    for t in (1, T // 2 + 2, T - 1):
        changed = type(a.inputs)(*(torch.cat([x[:, :t], z[:, t:T]], 1) for x, z in zip(a.inputs, other, strict=True)))
        after, _ = run(cell, backend, a._replace(inputs=changed))
        assert_close({"y": after[:, :t]}, {"y": before[:, :t]}, torch.float64, f"before step {t}")


def check_any_subset_of_gradients(cell: Cell, backend: str) -> None:
    """Gradients of one input alone equal those of all together."""
    a, generator = long_arguments(cell, backend), torch.Generator().manual_seed(4)
    inputs = [x.detach().requires_grad_() for x in a.inputs]
    y, _ = run(cell, backend, a._replace(inputs=type(a.inputs)(*inputs)))
    weight = torch.randn(y.shape, generator=generator, dtype=torch.float64, device="cpu").to(y)
    together = torch.autograd.grad((y * weight).sum(), inputs)
    for n, name in enumerate(a.inputs._fields):
        alone = [x.detach().requires_grad_(m == n) for m, x in enumerate(a.inputs)]
        y, _ = run(cell, backend, a._replace(inputs=type(a.inputs)(*alone)))
        (gradient,) = torch.autograd.grad((y * weight).sum(), [alone[n]])
        assert_close({f"gradient of {name}": gradient}, {f"gradient of {name}": together[n]}, torch.float64)


def check_non_contiguous(cell: Cell, backend: str) -> None:
    """Strided inputs, states and incoming gradients give the same results as contiguous ones."""
    a = long_arguments(cell, backend)
    strided = Arguments(*(tree_map_only(Tensor, _strided, part) for part in a))
    want, got = results_and_gradients(cell, backend, a), results_and_gradients(cell, backend, strided)
    assert_close(got, want, torch.float64)
    gradients = []
    for view in (lambda x: x, _strided):
        inputs = [x.detach().requires_grad_() for x in a.inputs]
        y, _ = run(cell, backend, a._replace(inputs=type(a.inputs)(*inputs)))
        gradients.append(torch.autograd.grad(y, inputs, view(torch.ones_like(y))))
    names = [f"gradient of {name}" for name in a.inputs._fields]
    contiguous, strided_gradients = (dict(zip(names, g, strict=True)) for g in gradients)
    assert_close(strided_gradients, contiguous, torch.float64)


def check_changes_no_input(cell: Cell, backend: str) -> None:
    """Neither the forward pass nor the backward pass writes to an argument."""
    a = long_arguments(cell, backend)
    copies = tree_map_only(Tensor, torch.clone, a)
    for reset in (a.reset, None):
        results_and_gradients(cell, backend, a._replace(reset=reset))
        run(cell, backend, a._replace(reset=reset))
    tensors = [
        zip(tree_leaves(argument), tree_leaves(copy), strict=True)
        for argument, copy in zip(a, copies, strict=True)
        if argument is not None
    ]
    for argument, copy in chain.from_iterable(tensors):
        assert torch.equal(argument, copy), "an input was changed"


def check_in_place_equals_apart(cell: Cell, backend: str) -> None:
    """The last state in `state_out`, which may be `state`, is bit-identical to a new state."""
    whole = long_arguments(cell, backend)
    for T, with_reset in ((1, False), (1, True), (whole.inputs[0].shape[1], True)):
        a = _time(whole, 0, T) if with_reset else _time(whole, 0, T)._replace(reset=None)
        y, last = run(cell, backend, a)
        over, into_new = (_with_clone(a.state) for _ in range(2))
        for _ in range(2):  # the second call takes the fast path
            for before, out in ((over, over), (a.state, into_new)):
                for leaf, value in zip(over, a.state, strict=True):
                    leaf.copy_(value)
                got, state = scan(cell, *a._replace(state=before), backend=backend, state_out=out)
                assert state is out, "the returned state is not state_out"
                same = [torch.equal(x, want) for x, want in zip((got, *state), (y, *last), strict=True)]
                assert all(same), f"results in place differ, T={T}"


def _with_clone(record: Any) -> Any:
    return type(record)(*(leaf.clone() for leaf in record))


def check_nan_propagates(cell: Cell, backend: str) -> None:
    """A NaN in any input reaches the output of its step, or of the next if a step reads before it writes."""
    for n, name in enumerate(cell.Inputs._fields):  # type: ignore[attr-defined]
        a = arguments(cell, BRIEF)._replace(reset=None)
        a.inputs[n][0, 1] = float("nan")
        y, _ = run(cell, backend, a)
        assert y[0, 1:3].isnan().any(), f"a NaN in {name} is lost"


def check_is_deterministic(cell: Cell, backend: str) -> None:
    """Two equal calls are bit-identical."""
    a = long_arguments(cell, backend, torch.float32)
    first, second = results_and_gradients(cell, backend, a), results_and_gradients(cell, backend, a)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), f"{name} differs from run to run"


def check_autocast_changes_nothing(cell: Cell, backend: str) -> None:
    """An autocast region does not change the results: sums stay in float32."""
    a = long_arguments(cell, backend, torch.float32)
    with torch.autocast(a.inputs[0].device.type, dtype=torch.bfloat16):
        inside, _ = run(cell, backend, a)
    outside, _ = run(cell, backend, a)
    assert torch.equal(inside, outside), "autocast changes the result"


def check_gradient_checkpointing(cell: Cell, backend: str) -> None:
    """Gradient checkpointing with `torch.utils.checkpoint` gives the same gradients."""
    for T in (1, 3, 9):
        a = with_gradients(arguments(cell, BRIEF._replace(T=T)))

        def loss(*inputs: Tensor, a: Arguments = a) -> Tensor:
            return run(cell, backend, a._replace(inputs=type(a.inputs)(*inputs)))[0].sin().sum()

        losses = [loss(*a.inputs), checkpoint(loss, *a.inputs, use_reentrant=False)]
        want, got = (torch.autograd.grad(one, a.inputs, materialize_grads=True, allow_unused=True) for one in losses)
        names = a.inputs._fields
        assert_close(
            dict(zip(names, got, strict=True)), dict(zip(names, want, strict=True)), torch.float64, f"at T={T}"
        )


def check_compiles(cell: Cell, backend: str) -> None:
    """`torch.compile(fullgraph=True)` captures a scan as one graph, with its backward pass.

    The check runs the graph without a compiler. `torch.library.opcheck` tests the operation of the compiled backend.
    """
    torch._dynamo.reset()
    a = arguments(cell, UNROLLED, torch.float32)
    compiled = torch.compile(_function(cell, backend), fullgraph=True, backend="eager")
    gradients = []
    for function in (compiled, _function(cell, backend)):
        inputs = [x.detach().requires_grad_() for x in a.inputs]
        y = function(a._replace(inputs=type(a.inputs)(*inputs)))
        gradients.append({"y": y} | {"gradient": torch.autograd.grad(y.square().sum(), inputs)[-1]})
    assert_close(gradients[0], gradients[1], torch.float32)


def check_exports(cell: Cell, backend: str) -> None:
    """`torch.export` exports a scan, and the exported program gives the same results."""
    a = arguments(cell, UNROLLED, torch.float32)

    class Module(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> Tensor:
            return scan(cell, cell.Inputs(*tensors), a.state, a.params, a.reset, backend=backend)[0]

    exported = torch.export.export(Module(), tuple(a.inputs)).module()
    assert_close({"y": exported(*a.inputs)}, {"y": run(cell, backend, a)[0]}, torch.float32)


def check_bad_input_is_refused(cell: Cell, backend: str) -> None:
    """Wrong shapes, dtypes, states and resets raise `InputError` with the wrong value in its message."""
    a = arguments(cell, ODD)
    first, beyond = a.inputs._fields[0], torch.tensor([1, ODD.T + 1])
    # Where reading the values would need a synchronisation, larger lengths count as T.
    numbers = {
        "lengths beyond the last step": a._replace(lengths=beyond),
        "negative lengths": a._replace(lengths=torch.tensor([-1, 1])),
    }
    for name, bad in {
        **(numbers if can_be_read(beyond) else {}),
        "a list": a._replace(inputs=list(a.inputs)),
        "too few axes": _with(a, first, a.inputs[0][0, 0]),
        "no step": a._replace(inputs=tree_map_only(Tensor, lambda x: x[:, :0], a.inputs), reset=None),
        "another length": _with(a, a.inputs._fields[-1], a.inputs[-1][:, :-1]),
        "integers": _with(a, first, a.inputs[0].long()),
        "complex numbers": _with(a, first, a.inputs[0].to(torch.complex64)),
        "eight bits": _with(a, first, a.inputs[0].to(torch.float8_e4m3fn)),
        "a sparse tensor": _with(a, first, a.inputs[0].to_sparse()),
        "no tensor": _with(a, first, 1.0),
        "a state of another batch": a._replace(state=tree_map_only(Tensor, lambda x: x[:1], a.state)),
        "a state of another kind": a._replace(state=tuple(a.state)),
        "a reset of numbers": a._replace(reset=torch.zeros(ODD.B, ODD.T)),
        "a reset of another length": a._replace(reset=torch.zeros(ODD.B, ODD.T + 1, dtype=torch.bool)),
        "params of another kind": a._replace(params=a.inputs),
        "lengths of another batch": a._replace(lengths=torch.ones(ODD.B + 1, dtype=torch.long)),
        "lengths as a mask": a._replace(lengths=a.reset),
        "lengths as a list": a._replace(lengths=[1, 2]),  # type: ignore[arg-type]
        "an initial state of every member": a._replace(initial_state=a.state),
        "an initial state of another kind": a._replace(initial_state=a.inputs),
    }.items():
        message = _error_message(cell, backend, bad)
        assert message, f"{name} is accepted"
        assert re.search(r"must be .*, got ", message), f"{name}: unclear message: {message}"


def _error_message(cell: Cell, backend: str, a: Arguments) -> str:
    try:
        run(cell, backend, a)
    except InputError as error:
        return str(error)
    return ""


def _function(cell: Cell, backend: str) -> Callable[[Arguments], Tensor]:
    return lambda a: run(cell, backend, a)[0]


def _with(a: Arguments, field: str, value: object) -> Arguments:
    return a._replace(inputs=a.inputs._replace(**{field: value}))


def _time(a: Arguments, start: int, stop: int) -> Arguments:
    inputs, reset = tree_map_only(Tensor, lambda x: x[:, start:stop], (a.inputs, a.reset))
    lengths = None if a.lengths is None else (a.lengths - start).clamp(0, stop - start)
    return a._replace(inputs=inputs, reset=reset, lengths=lengths)


def member(record: Any, b: int) -> Any:
    """The tensors of a record for one member of the batch."""
    return tree_map_only(Tensor, lambda x: x[b : b + 1], record)


def _strided(x: Tensor) -> Tensor:
    """The same numbers as a view: every second one of a larger tensor, with the order of axes reversed in memory."""
    backwards = torch.stack([x, x], dim=-1).permute(*reversed(range(x.ndim + 1))).contiguous()
    return backwards.permute(*reversed(range(x.ndim + 1)))[..., 0]
