"""`torch.ops.fastweights.scan`: the compiled scan of any cell as one operation that PyTorch can trace.

The arguments are the key of the cell and the fields of `Operands`.
"""

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fastweights.cell import Cell
from fastweights.compiler.specialise.specialisations import BY_KEY, Specialisations, specialisations_of
from fastweights.compiler.targets.checkpointing import chunk, chunk_on_gpu
from fastweights.compiler.targets.target import DIRECTIONS, TARGETS, Kernel, Operands
from fastweights.core.errors import invalid
from fastweights.core.grad_mode import wants_gradients
from fastweights.core.memo import get_or_compute
from fastweights.signature import learn_sizes

LIBRARY = torch.library.Library("fastweights", "DEF")
OPERANDS = "str cell, Tensor[] tensors, Tensor[] initial, Tensor? reset, Tensor? lengths"
LIBRARY.define(f"scan({OPERANDS}, bool keep) -> Tensor[]")
LIBRARY.define(f"scan_backward({OPERANDS}, Tensor checkpoints, Tensor d_y, Tensor?[] d_last) -> Tensor[]")


def sizes_of(cell: Cell, tensors: Sequence[Tensor]) -> dict[str, int]:
    """The sizes of the axes of a cell, from its tensors."""
    sizes: dict[str, int] = {}
    leading = {"Inputs": 3, "State": 2, "Params": 1}
    slots = [(slot, leading[kind]) for kind in leading if kind in cell.slots for slot in cell.slots[kind].values()]
    for (slot, skip), tensor in zip(slots, tensors, strict=True):
        learn_sizes(slot, [int(size) for size in tensor.shape[skip:]], sizes)
    return sizes


_BY_SHAPES: dict[Hashable, Specialisations] = {}


def _kernel(key: str, tensors: Sequence[Tensor], directions: Sequence[str]) -> Kernel:
    """The kernel of the specialisation with this key or, in a traced program, of the cell with this key."""
    specialisation = BY_KEY.get(key)
    if specialisation is None:
        shapes = (key, tensors[0].dtype, tensors[0].device.type, *[x.shape for x in tensors])
        specialisation, _ = get_or_compute(
            _BY_SHAPES, shapes, lambda: _specialisations(Cell.of_key(key), tensors)
        ).current()
    why = specialisation.build(directions)
    if specialisation.kernel is None or why:
        raise RuntimeError(why)
    return specialisation.kernel


def directions_of(back: bool) -> Sequence[str]:
    """The passes that a scan needs: the backward pass too, where a gradient is wanted."""
    return DIRECTIONS if back else DIRECTIONS[:1]


def _specialisations(cell: Cell, tensors: Sequence[Tensor]) -> Specialisations:
    return specialisations_of(cell, sizes_of(cell, tensors), tensors[0].dtype, tensors[0].device.type)


def _scan(
    cell: str,
    tensors: list[Tensor],
    initial_state: list[Tensor],
    reset: Tensor | None,
    lengths: Tensor | None,
    keep: bool,
) -> list[Tensor]:
    return _kernel(cell, tensors, directions_of(keep)).forward(Operands(tensors, initial_state, reset, lengths), keep)


def _scan_backward(
    cell: str,
    tensors: list[Tensor],
    initial_state: list[Tensor],
    reset: Tensor | None,
    lengths: Tensor | None,
    checkpoints: Tensor,
    d_y: Tensor,
    d_last: list[Tensor | None],
) -> list[Tensor]:
    operands = Operands(tensors, initial_state, reset, lengths)
    return _kernel(cell, tensors, directions_of(True)).backward(operands, checkpoints, d_y, d_last)


for device in TARGETS:
    LIBRARY.impl("scan", _scan, device.upper())
    LIBRARY.impl("scan_backward", _scan_backward, device.upper())


@torch.library.register_fake("fastweights::scan", lib=LIBRARY)
def _scan_shapes(
    cell: str,
    tensors: list[Tensor],
    initial_state: list[Tensor],
    reset: Tensor | None,
    lengths: Tensor | None,
    keep: bool,
) -> list[Tensor]:
    source = Cell.of_key(cell)
    B, T, H = tensors[0].shape[:3]
    count = len(source.slots["Inputs"])
    states = tensors[count : count + len(source.slots["State"])]
    y = tensors[0].new_empty((B, T, H, *source.output.shape(sizes_of(source, tensors))))
    size = sum(x[0, 0].numel() for x in states)
    is_gpu = TARGETS.get(y.device.type) == "triton"
    shape = (B * H, -(-T // (chunk_on_gpu(size, T, B * H) if is_gpu else chunk(size, T))), size) if keep else (0,)
    last = [x.new_empty(x.shape) for x in states]
    return [y, *last, y.new_empty(shape)]


@torch.library.register_fake("fastweights::scan_backward", lib=LIBRARY)
def _scan_backward_shapes(
    cell: str,
    tensors: list[Tensor],
    initial_state: list[Tensor],
    reset: Tensor | None,
    lengths: Tensor | None,
    checkpoints: Tensor,
    d_y: Tensor,
    d_last: list[Tensor | None],
) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (*tensors, *initial_state)]


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.cell, *operands, _ = inputs
    _save(ctx, Operands(*operands), output)


def _save(ctx: Any, operands: Operands, output: Sequence[Tensor]) -> None:
    """Saves the operands and the checkpoints, the last output, for the backward pass."""
    ctx.count = len(operands.tensors)
    ctx.save_for_backward(*operands.tensors, *operands.initial_state, operands.reset, operands.lengths, output[-1])
    ctx.y_shape = output[0].shape
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    tensors, initial_state = _backward(ctx, grads)
    return None, tensors, initial_state, None, None, None


def _backward(ctx: Any, grads: Sequence[Tensor | None], kernel: Kernel | None = None) -> tuple[list[Any], list[Any]]:
    """The gradients of the tensors and of the initial state, by `kernel` if PyTorch need not see the backward pass."""
    for d in grads:
        if d is not None and torch._C._functorch.is_legacy_batchedtensor(d):
            raise invalid(
                "backend", "'reference' for a batch of gradients", "'compiled'", "It computes one gradient at a time."
            )
    *saved, reset, lengths, checkpoints = ctx.saved_tensors
    operands = Operands(saved[: ctx.count], saved[ctx.count :], reset, lengths)
    d_y, *d_last = grads[:-1]
    d_y = operands.tensors[0].new_zeros(ctx.y_shape) if d_y is None else d_y
    if not checkpoints.numel():
        # An exported program keeps no checkpoints, since it may run with or without gradients.
        *_, checkpoints = torch.ops.fastweights.scan(ctx.cell, *operands, True)
    if kernel is not None and not torch.is_grad_enabled() and is_plain(operands.tensors):
        gradients = kernel.backward(operands, checkpoints, d_y, d_last)
    else:
        gradients = torch.ops.fastweights.scan_backward(ctx.cell, *operands, checkpoints, d_y, d_last)
    return gradients[: ctx.count], gradients[ctx.count :]


def refuse_second_derivative(backend: str, ctx: Any, *grads: Any) -> None:
    """Raises an `InputError`: the backward pass of a backend's backward pass."""
    raise invalid("backend", "'reference' for second derivatives", repr(backend), "It has first derivatives only.")


_refused = partial(refuse_second_derivative, "compiled")
torch.library.register_autograd("fastweights::scan_backward", _refused, lib=LIBRARY)
torch.library.register_autograd("fastweights::scan", _gradients, setup_context=_keep_for_backward, lib=LIBRARY)


class _Direct(torch.autograd.Function):
    """The operation without PyTorch's dispatcher, which for lists of tensors takes longer than a few time steps."""

    @staticmethod
    def forward(
        ctx: Any, kernel: Kernel, cell: str, count: int, reset: Tensor | None, lengths: Tensor | None, *both: Tensor
    ) -> tuple[Tensor, ...]:
        operands = Operands(both[:count], both[count:], reset, lengths)
        output = kernel.forward(operands, True)
        ctx.kernel, ctx.cell = kernel, cell
        _save(ctx, operands, output)
        return tuple(output[:-1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        tensors, initial_state = _backward(ctx, [*grads, None], ctx.kernel)
        return None, None, None, None, None, *tensors, *initial_state


def scan(cell: Cell, operands: Operands) -> tuple[Tensor, list[Tensor]]:
    """y and the last state of a traced call, differentiable once."""
    needs_gradients = wants_gradients((*operands.tensors, *operands.initial_state))
    keep = needs_gradients and not torch.compiler.is_exporting()
    y, *last, _ = torch.ops.fastweights.scan(cell.key, *operands, keep)
    return y, last


def scan_directly(kernel: Kernel, cell: Cell, operands: Operands, needs_gradients: bool) -> tuple[Tensor, list[Tensor]]:
    """The same for a call with `is_plain` tensors, by a kernel that is built; with gradients if `needs_gradients`."""
    tensors, initial_state, reset, lengths = operands
    if needs_gradients:
        y, *last = _Direct.apply(kernel, cell.key, len(tensors), reset, lengths, *tensors, *initial_state)
    else:
        y, *last, _ = kernel.forward(operands, False)
    return y, last


def is_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether PyTorch need not see a call. For one time step, its dispatcher takes half as long as the step."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and not torch._C._len_torch_dispatch_stack()
        and PLAIN.issuperset(map(type, tensors))
        and tensors[0].device.type in TARGETS
    )


PLAIN = {Tensor, torch.nn.Parameter}
