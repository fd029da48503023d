"""How a definition is read: as it lies, at points of it, or in a way that only memory allows."""

from collections.abc import Iterable, Iterator, Sequence

from fastweights.compiler.ir.nodes import (
    Assemble,
    Definition,
    Expression,
    Load,
    Reduce,
    Reshape,
    Shape,
    Value,
    behind,
    load_nodes,
    volume,
)

LARGEST = 1 << 20
"""The most numbers of a tile: Triton has no larger ones."""
CUBE = 1 << 14
"""The most numbers, of three axes or more, that a sum is taken of at once; of more it is added up step by step."""


def padded(n: int) -> int:
    """The next power of two: axes of tiles have no other sizes."""
    return 1 << (n - 1).bit_length()


def real(shape: Sequence[int]) -> list[int]:
    """The axes of more than one element: those of a tile."""
    return [a for a, n in enumerate(shape) if n > 1]


def tile_size(shape: Sequence[int]) -> int:
    """Numbers in a tile, with those that pad it."""
    return volume([padded(n) for n in shape])


def is_whole(load: Load, domain: Sequence[int]) -> bool:
    """Whether every axis of what is read runs along an axis of its own of the domain, from end to end."""
    shape = load.definition.shape
    found = [load.index[a] for a in real(shape)]
    whole = all(i.axis >= 0 and (i.step, i.start) == (1, 0) for i in found)
    fits = whole and all(domain[i.axis] == shape[a] for i, a in zip(found, real(shape), strict=True))
    return fits and len({i.axis for i in found}) == len(found)


def is_pointed(load: Load, domain: Sequence[int]) -> bool:
    """Whether some axes are read at one place each, and the others from end to end."""
    shape = load.definition.shape
    moving = [a for a in real(shape) if load.index[a].axis >= 0]
    found = [load.index[a] for a in moving]
    whole = all((i.step, i.start) == (1, 0) and domain[i.axis] == shape[a] for i, a in zip(found, moving, strict=True))
    return whole and len({i.axis for i in found}) == len(found)


def is_slow(definition: Definition) -> bool:
    """Whether a sum is over too much to be taken at once: a product of matrices, say."""
    if not isinstance(definition, Reduce):
        return False
    domain = (*definition.shape, definition.extent)
    size = tile_size(domain)
    if len(real(domain)) < 3:
        return False
    operands = max((tile_size(d.shape) for d in definition.operands()), default=1)
    return size > LARGEST or size > max(CUBE, operands)


def order_of(definition: Reduce) -> tuple[int, ...] | None:
    """The axes of a sum as they lie in what has all of them, such as a matrix that is read down its columns; None where
    nothing has, or what remains of them would not be in order."""
    over = (*definition.shape, definition.extent)
    for load in load_nodes(definition.expression):
        places = tuple(i.axis for i, n in zip(load.index, load.definition.shape, strict=True) if n > 1)
        rest = [a for a in places if a != len(definition.shape)]
        if is_whole(load, over) and len(places) == len(real(over)) and rest == sorted(rest):
            return places
    return None


def in_memory(results: Sequence[Value], there: Iterable[Definition]) -> set[Definition]:
    """The definitions behind some results that must lie in memory, except for those that are already `there`.

    They are read in ways that a tile in registers does not allow, by other definitions or by the results themselves.
    """
    everything = behind(results)
    found: set[Definition] = {d for d in everything if isinstance(d, Assemble) and not is_stacked(d)}
    for definition in everything:
        if isinstance(definition, Reshape):
            found.add(root(definition.base))
        for _, shape, expression in definition.bodies:
            found.update(_out_of_order(expression, shape, len(definition.shape) if is_slow(definition) else -1))
    for shape, expression in results:
        found.update(_out_of_order(expression, shape))
    return found.difference(there)


def _out_of_order(expression: Expression, shape: Shape, loop: int = -1) -> Iterator[Definition]:
    """Tensors that an expression reads out of order; the axis `loop` is gone through one place at a time."""
    for load in load_nodes(expression):
        looped = any(i.axis == loop >= 0 for i in load.index)
        if looped or not is_pointed(load, shape):
            yield root(load.definition)


def root(definition: Definition) -> Definition:
    """What is reshaped."""
    return root(definition.base) if isinstance(definition, Reshape) else definition


def is_stacked(definition: Assemble) -> bool:
    """Whether every region of an assembled definition is whole along an axis or at one place of it."""
    return all(
        (first, n) == (0, size) or n == 1
        for region in definition.regions
        for first, n, size in zip(region.start, region.shape, definition.shape, strict=True)
    )
