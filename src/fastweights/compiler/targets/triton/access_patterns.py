"""Classifies how a node is read: as a whole tile, at some indices, or in a way that needs memory."""

from collections.abc import Iterable, Iterator, Sequence

from fastweights.compiler.ir.nodes import (
    Assemble,
    Expression,
    Load,
    Node,
    Reduce,
    Reshape,
    Shape,
    Value,
    ancestors,
    load_nodes,
    volume,
)

LARGEST = 1 << 20
"""Largest number of elements of a tile in Triton."""
CUBE = 1 << 14
"""Largest number of elements with three axes or more that are summed at once."""


def padded(n: int) -> int:
    """The next power of two, which every axis of a tile must have as size."""
    return 1 << (n - 1).bit_length()


def real(shape: Sequence[int]) -> list[int]:
    """The axes with more than one element, which are those of a tile."""
    return [a for a, n in enumerate(shape) if n > 1]


def tile_size(shape: Sequence[int]) -> int:
    """Number of elements of a tile, with its padding."""
    return volume([padded(n) for n in shape])


def is_whole(load: Load, domain: Sequence[int]) -> bool:
    """Whether every axis of the loaded node runs along a different axis of the domain, from start to end."""
    shape = load.node.shape
    indices = [load.index[a] for a in real(shape)]
    whole = all(i.axis >= 0 and (i.step, i.start) == (1, 0) for i in indices)
    fits = whole and all(domain[i.axis] == shape[a] for i, a in zip(indices, real(shape), strict=True))
    return fits and len({i.axis for i in indices}) == len(indices)


def is_pointed(load: Load, domain: Sequence[int]) -> bool:
    """Whether every axis of the loaded node has a constant index, or runs along an axis of the domain."""
    shape = load.node.shape
    moving = [a for a in real(shape) if load.index[a].axis >= 0]
    indices = [load.index[a] for a in moving]
    whole = all(
        (i.step, i.start) == (1, 0) and domain[i.axis] == shape[a] for i, a in zip(indices, moving, strict=True)
    )
    return whole and len({i.axis for i in indices}) == len(indices)


def is_slow(node: Node) -> bool:
    """Whether a reduction has too many elements to be computed at once, such as a matrix product."""
    if not isinstance(node, Reduce):
        return False
    domain = (*node.shape, node.extent)
    size = tile_size(domain)
    if len(real(domain)) < 3:
        return False
    operands = max((tile_size(d.shape) for d in node.operands()), default=1)
    return size > LARGEST or size > max(CUBE, operands)


def order_of(node: Reduce) -> tuple[int, ...] | None:
    """The axes of a reduction in the memory order of an operand that has all of them; None if there is none.

    A matrix that is reduced along its columns is an example. The remaining axes must stay in order.
    """
    over = (*node.shape, node.extent)
    for load in load_nodes(node.expression):
        places = tuple(i.axis for i, n in zip(load.index, load.node.shape, strict=True) if n > 1)
        rest = [a for a in places if a != len(node.shape)]
        if is_whole(load, over) and len(places) == len(real(over)) and rest == sorted(rest):
            return places
    return None


def in_memory(results: Sequence[Value], there: Iterable[Node]) -> set[Node]:
    """The nodes behind some results that must be in memory, except those that are already `there`.

    Other nodes or the results read them in ways that a tile in registers does not allow.
    """
    everything = ancestors(results)
    nodes: set[Node] = {d for d in everything if isinstance(d, Assemble) and not is_stacked(d)}
    for node in everything:
        if isinstance(node, Reshape):
            nodes.add(root(node.base))
        for _, shape, expression in node.bodies:
            nodes.update(_out_of_order(expression, shape, len(node.shape) if is_slow(node) else -1))
    for shape, expression in results:
        nodes.update(_out_of_order(expression, shape))
    return nodes.difference(there)


def _out_of_order(expression: Expression, shape: Shape, loop: int = -1) -> Iterator[Node]:
    """The nodes that an expression reads out of order. The axis `loop` is iterated element by element."""
    for load in load_nodes(expression):
        looped = any(i.axis == loop >= 0 for i in load.index)
        if looped or not is_pointed(load, shape):
            yield root(load.node)


def root(node: Node) -> Node:
    """The base of a reshape."""
    return root(node.base) if isinstance(node, Reshape) else node


def is_stacked(node: Assemble) -> bool:
    """Whether every region of an assembled node covers an axis from start to end, or has one index along it."""
    return all(
        (first, n) == (0, size) or n == 1
        for region in node.regions
        for first, n, size in zip(region.start, region.shape, node.shape, strict=True)
    )
