"""Values that are views: parts of a buffer with a stride per axis, which an operation reads without a copy."""

from fastweights.compiler.ir.nodes import Load, Node, Reshape, Shape, Value, volume


def base_of(node: Node) -> Node:
    """The node whose memory a reshape has; the node itself if it is no reshape."""
    return base_of(node.base) if isinstance(node, Reshape) else node


def contiguous(shape: Shape) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    return tuple(volume(shape[axis + 1 :]) for axis in range(len(shape)))


def strides_of(value: Value) -> tuple[int, ...]:
    """The stride of every axis of a view, in elements: 0 for an axis that repeats the same elements."""
    load = value.expression
    assert isinstance(load, Load)
    strides = [0] * len(value.shape)
    for index, stride in zip(load.index, contiguous(load.node.shape), strict=True):
        if index.axis >= 0:
            strides[index.axis] += index.step * stride
    return tuple(strides)


def offset_of(value: Value) -> int:
    """The first element of a view."""
    load = value.expression
    assert isinstance(load, Load)
    return sum(i.start * stride for i, stride in zip(load.index, contiguous(load.node.shape), strict=True))


def is_dense(shape: Shape, strides: tuple[int, ...]) -> bool:
    """Whether strides are those of a contiguous tensor. The stride of an axis with one element does not matter."""
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, contiguous(shape), strict=True))
