"""Places intermediate results in scratch memory. Results that are not needed at the same time share memory."""

from typing import NamedTuple

from fastweights.compiler.ir.network import BufferRole, NetworkBuffer, NetworkProgram
from fastweights.compiler.targets.cpp.prologue import padded


class Memory(NamedTuple):
    """The offset of every scratch buffer, and the size of the scratch memory, in elements."""

    offsets: dict[NetworkBuffer, int]
    size: int


def place(program: NetworkProgram) -> Memory:
    """The places of the scratch buffers: the first gap that is free from the first write to the last use."""
    last = {b: n for n, operation in enumerate(program.operations) for b in (*operation.reads, *operation.writes)}
    offsets: dict[NetworkBuffer, int] = {}
    live: list[NetworkBuffer] = []
    size = 0
    for n, operation in enumerate(program.operations):
        live = [b for b in live if last[b] >= n]
        for b in operation.writes:
            if b.role is BufferRole.SCRATCH and b not in offsets:
                offsets[b] = _gap(b, live, offsets)
                live.append(b)
                size = max(size, offsets[b] + padded(b.size))
    return Memory(offsets, size)


def _gap(buffer: NetworkBuffer, live: list[NetworkBuffer], offsets: dict[NetworkBuffer, int]) -> int:
    """The first offset at which a buffer does not overlap any that is live."""
    start = 0
    for other in sorted(live, key=offsets.__getitem__):
        if offsets[other] - start >= padded(buffer.size):
            return start
        start = max(start, offsets[other] + padded(other.size))
    return start
