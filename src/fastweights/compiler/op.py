"""`torch.ops.fastweights.scan`: the compiled scan of any cell as one operation that PyTorch can trace.

Tensors are passed as the inputs, the state and the params of the cell, one after the other; the cell by its key.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights.cell import Cell
from fastweights.compiler.specialise.specialisations import BY_KEY, Forms, forms
from fastweights.compiler.targets.checkpointing import chunk
from fastweights.compiler.targets.target import TARGETS, WAYS, Kernel
from fastweights.core.errors import require
from fastweights.core.grad_mode import wants_gradients
from fastweights.core.memo import remember
from fastweights.signature import learn_sizes

LIBRARY = torch.library.Library("fastweights", "DEF")
GIVEN = "str cell, Tensor[] tensors, Tensor[] initial, Tensor? reset, Tensor? lengths"
LIBRARY.define(f"scan({GIVEN}, bool keep) -> Tensor[]")
LIBRARY.define(f"scan_backward({GIVEN}, Tensor checkpoints, Tensor d_y, Tensor?[] d_last) -> Tensor[]")


def sizes_of(cell: Cell, tensors: Sequence[Tensor]) -> dict[str, int]:
    """The sizes of the axes of a cell, read off its tensors."""
    sizes: dict[str, int] = {}
    leading = {"Inputs": 3, "State": 2, "Params": 1}
    slots = [(slot, leading[kind]) for kind in leading if kind in cell.slots for slot in cell.slots[kind].values()]
    for (slot, skip), tensor in zip(slots, tensors, strict=True):
        learn_sizes(slot, [int(size) for size in tensor.shape[skip:]], sizes)
    return sizes


_SEEN: dict[Hashable, Forms] = {}


def _kernel(key: str, tensors: Sequence[Tensor], ways: Sequence[str]) -> Kernel:
    """The kernel for some tensors: of the form with this key or, in a traced program, of the cell with this key."""
    form = BY_KEY.get(key)
    if form is None:
        seen = (key, tensors[0].dtype, tensors[0].device.type, *[x.shape for x in tensors])
        form, _ = remember(_SEEN, seen, lambda: _forms(Cell.of_key(key), tensors)).now()
    why = form.build(ways)
    if form.kernel is None or why:
        raise RuntimeError(why)
    return form.kernel


def ways(back: bool) -> Sequence[str]:
    """Those that a scan needs: back too, where a gradient is wanted."""
    return WAYS if back else WAYS[:1]


def _forms(cell: Cell, tensors: Sequence[Tensor]) -> Forms:
    return forms(cell, sizes_of(cell, tensors), tensors[0].dtype, tensors[0].device.type)


def _scan(
    cell: str,
    tensors: list[Tensor],
    initial: list[Tensor],
    reset: Tensor | None,
    lengths: Tensor | None,
    keep: bool,
) -> list[Tensor]:
    return _kernel(cell, tensors, ways(keep)).forward(tensors, initial, reset, lengths, keep)


def _scan_backward(
    cell: str,
    tensors: list[Tensor],
    initial: list[Tensor],
    reset: Tensor | None,
    lengths: Tensor | None,
    checkpoints: Tensor,
    d_y: Tensor,
    d_last: list[Tensor | None],
) -> list[Tensor]:
    return _kernel(cell, tensors, ways(True)).backward(tensors, initial, reset, lengths, checkpoints, d_y, d_last)


for device in TARGETS:
    LIBRARY.impl("scan", _scan, device.upper())
    LIBRARY.impl("scan_backward", _scan_backward, device.upper())


@torch.library.register_fake("fastweights::scan", lib=LIBRARY)
def _scan_shapes(
    cell: str,
    tensors: list[Tensor],
    initial: list[Tensor],
    reset: Tensor | None,
    lengths: Tensor | None,
    keep: bool,
) -> list[Tensor]:
    found = Cell.of_key(cell)
    B, T, H = tensors[0].shape[:3]
    count = len(found.slots["Inputs"])
    states = tensors[count : count + len(found.slots["State"])]
    y = tensors[0].new_empty((B, T, H, *found.output.shape(sizes_of(found, tensors))))
    size = sum(x[0, 0].numel() for x in states)
    shape = (B * H, -(-T // chunk(size, T)), size) if keep else (0,)
    last = [x.new_empty(x.shape) for x in states]
    return [y, *last, y.new_empty(shape)]


@torch.library.register_fake("fastweights::scan_backward", lib=LIBRARY)
def _scan_backward_shapes(
    cell: str,
    tensors: list[Tensor],
    initial: list[Tensor],
    reset: Tensor | None,
    lengths: Tensor | None,
    checkpoints: Tensor,
    d_y: Tensor,
    d_last: list[Tensor | None],
) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (*tensors, *initial)]


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.cell, tensors, initial, reset, lengths, _ = inputs
    ctx.count, ctx.starts = len(tensors), len(initial)
    ctx.resets, ctx.ends = reset is not None, lengths is not None
    ctx.save_for_backward(*tensors, *initial, *(x for x in (reset, lengths) if x is not None), output[-1])
    ctx.y = output[0].shape
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    if any(torch._C._functorch.is_legacy_batchedtensor(d) for d in grads if d is not None):
        require(False, "backend", "'reference' for a batch of gradients", "'compiled'", "It makes one at a time.")
    *saved, checkpoints = ctx.saved_tensors
    tensors, initial, rest = (
        saved[: ctx.count],
        saved[ctx.count : ctx.count + ctx.starts],
        saved[ctx.count + ctx.starts :],
    )
    reset, lengths = rest[0] if ctx.resets else None, rest[-1] if ctx.ends else None
    d_y, *d_last = grads[:-1]
    d_y = tensors[0].new_zeros(ctx.y) if d_y is None else d_y
    if not checkpoints.numel():
        # A program that was exported keeps none: whoever runs it may or may not want gradients.
        *_, checkpoints = torch.ops.fastweights.scan(ctx.cell, tensors, initial, reset, lengths, True)
    given = (tensors, initial, reset, lengths, checkpoints, d_y, d_last)
    if torch.is_grad_enabled() or not is_plain(tensors):
        gradients = torch.ops.fastweights.scan_backward(ctx.cell, *given)
    else:
        gradients = _kernel(ctx.cell, tensors, ways(True)).backward(*given)
    return None, gradients[: ctx.count], gradients[ctx.count :], None, None, None


def _refuse_second_derivative(ctx: Any, *grads: Any) -> None:
    require(False, "backend", "'reference' for derivatives of derivatives", "'compiled'", "It has a first one only.")


torch.library.register_autograd("fastweights::scan_backward", _refuse_second_derivative, lib=LIBRARY)
torch.library.register_autograd("fastweights::scan", _gradients, setup_context=_keep_for_backward, lib=LIBRARY)


class _Direct(torch.autograd.Function):
    """The op where nobody but the kernel must see it: through lists of tensors, PyTorch's dispatcher takes longer than
    a few steps."""

    @staticmethod
    def forward(
        ctx: Any, cell: str, count: int, reset: Tensor | None, lengths: Tensor | None, *given: Tensor
    ) -> tuple[Tensor, ...]:
        tensors, initial = list(given[:count]), list(given[count:])
        output = _kernel(cell, tensors, ways(True)).forward(tensors, initial, reset, lengths, True)
        _keep_for_backward(ctx, (cell, tensors, initial, reset, lengths, True), output)
        return tuple(output[:-1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        _, tensors, initial, *_ = _gradients(ctx, [*grads, None])
        return None, None, None, None, *tensors, *initial


def scan(
    cell: Cell, tensors: list[Tensor], initial: list[Tensor], reset: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    """y and the last state, differentiable once."""
    wanted = wants_gradients((*tensors, *initial))
    if is_plain(tensors):
        if wanted:
            y, *last = _Direct.apply(cell.key, len(tensors), reset, lengths, *tensors, *initial)
        else:
            y, *last, _ = _kernel(cell.key, tensors, ways(False)).forward(tensors, initial, reset, lengths, False)
        return y, last
    keep = wanted and not torch.compiler.is_exporting()
    y, *last, _ = torch.ops.fastweights.scan(cell.key, tensors, initial, reset, lengths, keep)
    return y, last


def is_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether nobody but the kernel must see a call: for one step, PyTorch's dispatcher takes half as long as it."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and not torch._C._len_torch_dispatch_stack()
        and PLAIN.issuperset(map(type, tensors))
        and tensors[0].device.type in TARGETS
    )


PLAIN = {Tensor, torch.nn.Parameter}
