"""The parts of a step for kernels that write and read once per step: a step with several becomes several steps."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.backends.chunkwise.coefficients import StepCoefficients
from fastweights.backends.chunkwise.factors import Columns
from fastweights.backends.chunkwise.fused_scan import ScanOperands


class PartLayout(NamedTuple):
    """The order of the parts of a step: reads before the step, writes, and reads after the step.

    The writes that erase come first. They are in one `group` of parts that all read the S before the step. The first
    write is the only one that decays. `reads` has the part of every read. If all reads are before the step, the last of
    them are in the group of the first write. Otherwise all parts read after they write. A group has a power of two
    parts, and so do the steps of a chunk. Parts that fill up a group do nothing.
    """

    first_write: int
    reads: tuple[int, ...]
    parts: int
    group: int
    reads_after: bool
    erases: bool

    def operands(self, steps: StepCoefficients, vectors: Sequence[Tensor], S: Tensor, factors: Columns) -> ScanOperands:
        """The operands of the parts, with the `vectors` of the reads in place of q, and `factors` of the decay."""
        operands = self.placed(steps, vectors, factors)
        q, k, e, v, a = (None if x is None else _interleaved(x) for x in operands)
        assert q is not None
        assert k is not None
        assert v is not None
        return ScanOperands(q, k, e, v, a, S)

    def placed(
        self, steps: StepCoefficients, vectors: Sequence[Tensor], factors: Columns
    ) -> tuple[list[Tensor] | None, ...]:
        """q, k, e, v and a of every part, each `[B, T, H, n]`; None in place of e or a where a scan has none."""
        keys, erase, values = zip(*steps.writes, strict=True)
        writes = range(self.first_write, self.first_write + len(keys))
        erasing = [x for x in erase if x is not None]
        return (
            self._placed(vectors, self.reads),
            self._placed(keys, writes),
            self._placed(erasing, writes[: len(erasing)]) if erasing else None,
            self._placed(values, writes),
            None if steps.decay is None else self._placed([steps.decay], writes[:1], factors.one),
        )

    def reads_of(self, y: Tensor, offsets: Sequence[Tensor]) -> Tensor:
        """The reads of every step `[B, T, H, n, R]`, from those of all parts, plus the offsets."""
        y, first, count = y.unflatten(1, (-1, self.parts)), self.reads[0], len(self.reads)
        # A slice of parts in order, such as all of them, is no copy.
        is_slice = self.reads == (*range(first, first + count),)
        reads = (y[:, :, first : first + count] if is_slice else y[:, :, list(self.reads)]).movedim(2, -2)
        return reads + torch.stack([_by_time(x) for x in offsets], -2) if offsets else reads

    def _placed(
        self,
        vectors: Sequence[Tensor],
        places: Sequence[int],
        of_others: Callable[[Tensor], Tensor] = torch.zeros_like,
    ) -> list[Tensor]:
        """Vectors of steps in their parts, and those `of_others` in the other parts."""
        by_time = [_by_time(x) for x in vectors]
        parts = by_time[:1] if self.parts == 1 else [of_others(by_time[0])] * self.parts
        for place, x in zip(places, by_time, strict=True):
            parts[place] = x
        return parts


def layout_of(after: Sequence[bool], writes: int, erasing: int) -> PartLayout:
    """The layout for reads of which each is after the step or before it, and for writes of which some erase."""
    before, group = len(after) - sum(after), 1 << max(0, erasing - 1).bit_length()
    first_write = _filled(before if any(after) else max(0, before - group), group)
    first_before = 0 if any(after) else first_write + group - before
    first_after = first_write + writes - 1
    reads = tuple(
        first_after + sum(after[:n]) if is_after else first_before + n - sum(after[:n])
        for n, is_after in enumerate(after)
    )
    parts = _filled(first_after + max(1, sum(after)), group)
    return PartLayout(first_write, reads, parts, group, any(after), erasing > 0)


def _filled(parts: int, group: int) -> int:
    """The number of parts in whole groups."""
    return -(-parts // group) * group


def _interleaved(parts: Sequence[Tensor]) -> Tensor:
    """The parts `[B, T, H, n]` of all steps, one after the other in time."""
    return parts[0] if len(parts) == 1 else torch.stack(list(parts), 2).flatten(1, 2)


def _by_time(x: Tensor) -> Tensor:
    """`[1, B, H, T, ...]` -> `[B, T, H, ...]`."""
    return x.squeeze(0).movedim(2, 1)
