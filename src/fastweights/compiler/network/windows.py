"""Lowers convolutions and maximum pooling, which read a window of their input per result."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from fastweights.compiler.ir.nodes import Value, volume
from fastweights.compiler.operations import OPERATIONS


def convolution(lowering: Any, node: Any) -> Value | None:
    """A convolution with a weight: the product of all windows, one per row, and the weight as a matrix."""
    *_, bias, stride, padding, dilation, transposed, _, groups = node.args
    x, weight = lowering.number(node.args[0]), lowering.number(node.args[1])
    if transposed or groups != 1 or lowering.weight(weight, weight.shape) is None:
        return None
    builder, sizes, (channels, _, *kernel) = lowering.builder, node.meta["val"].shape[2:], weight.shape
    parts = [
        OPERATIONS["unsqueeze"](builder, part, -1)
        for part in _parts(lowering, _padded(lowering, x, padding, 0.0), sizes, kernel, stride, dilation)
    ]
    rank = len(sizes)
    windows = OPERATIONS["cat"](builder, parts, -1)  # [B, C, *sizes, volume(kernel)]
    windows = OPERATIONS["permute"](builder, windows, [0, *range(2, rank + 2), 1, rank + 2])
    columns = volume(weight.shape[1:])
    rows = OPERATIONS["view"](builder, windows, [x.shape[0] * volume(sizes), columns])
    matrix = OPERATIONS["permute"](builder, OPERATIONS["view"](builder, weight, [channels, columns]), [1, 0])
    lowering.out.windows = max(lowering.out.windows, volume(rows.shape))
    added = [] if bias is None else [lowering.number(bias)]
    (y,) = lowering.special("linear", {"x": [rows], "weight": [matrix], "bias": added}, [(rows.shape[0], channels)])
    y = OPERATIONS["view"](builder, y, [x.shape[0], *sizes, channels])
    last: Value = OPERATIONS["permute"](builder, y, [0, rank + 1, *range(1, rank + 1)])
    return last


def maximum_pooling(lowering: Any, node: Any) -> tuple[Value, None]:
    """The maximum of every window, without its position."""
    x, kernel = lowering.number(node.args[0]), node.args[1]
    defaults: list[Any] = [kernel, [0, 0], [1, 1]]
    arguments = list(node.args[2:5])
    stride, padding, dilation = arguments + defaults[len(arguments) :]
    sizes = node.meta["val"][0].shape[2:]
    parts = _parts(lowering, _padded(lowering, x, padding, float("-inf")), sizes, kernel, stride or kernel, dilation)
    y = next(parts)
    for part in parts:
        y = OPERATIONS["maximum"](lowering.builder, y, part)
    return y, None


def _padded(lowering: Any, x: Value, padding: Sequence[int], value: float) -> Value:
    widths = [width for size in reversed(padding) for width in (size, size)]
    padded: Value = OPERATIONS["constant_pad_nd"](lowering.builder, x, widths, value) if any(widths) else x
    return padded


def _parts(
    lowering: Any,
    x: Value,
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Iterator[Value]:
    """The elements `[B, C, *sizes]` at each place of the windows."""
    for place in product(*map(range, kernel)):
        part = x
        for n, at in enumerate(place):
            first = at * dilation[n]
            last = first + (sizes[n] - 1) * stride[n] + 1
            part = OPERATIONS["slice"](lowering.builder, part, n + 2, first, last, stride[n])
        yield part
