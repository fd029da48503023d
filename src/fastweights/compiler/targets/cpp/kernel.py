"""Calls the built kernels of a cell with tensors."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from ctypes import CDLL, c_char_p, c_int64, c_void_p
from functools import lru_cache, partial
from itertools import chain
from struct import Struct, pack
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.compiler.ir.nodes import volume
from fastweights.compiler.targets.arguments import BACKWARD, FORWARD, in_order
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.checkpointing import chunk
from fastweights.compiler.targets.cpp.threads import share
from fastweights.compiler.targets.target import Operands
from fastweights.core.memo import get_or_compute

THREAD = 1 << 16
"""Smallest number of state elements per thread, which are worth the microseconds to start the thread."""


class _Called:
    """A kernel that is called with inputs `[B, T, H, ...]`, state `[B, H, ...]` and params `[H, ...]`, in order."""

    def __init__(self, spec: CellSpec) -> None:
        cell, sizes = spec.cell, dict(spec.sizes)
        self.inputs, self.states = len(cell.slots["Inputs"]), len(cell.slots["State"])
        self.output = cell.output.shape(sizes)
        self.size = sum(volume(slot.shape(sizes)) for slot in cell.slots["State"].values())

    def _readable(self, tensors: Sequence[Tensor]) -> tuple[tuple[list[Tensor], list[Tensor], list[Tensor]], list[int]]:
        """Inputs, state and params that a kernel can read, and the strides of the inputs over batch, time and heads."""
        inputs: list[Tensor] = []
        strides: list[int] = []
        for x in tensors[: self.inputs]:
            x = x if x.is_contiguous() or _is_dense(x) else x.contiguous()
            inputs.append(x)
            strides.extend(x.stride()[:3])
        others = [x.contiguous() for x in tensors[self.inputs :]]
        return (inputs, others[: self.states], others[self.states :]), strides

    def _threads(self, num_heads: int, steps: int) -> int:
        """The number of threads for `steps` steps of each of `num_heads` heads. A thread needs enough work to be worth
        its start."""
        return max(1, min(torch.get_num_threads(), num_heads, num_heads * steps * self.size // THREAD))


class _CallLayout(NamedTuple):
    """The properties of all calls with tensors of the same shapes and strides.

    They are: whether the kernel can read the tensors as they are, the positions of tensors that may be lazily negated,
    the shape of y, the number of heads in the batch, the largest useful number of threads, and the packed numbers of a
    call with one thread.
    """

    are_read: bool
    doubtful: list[int]
    shape: tuple[int, ...]
    num_heads: int
    most: int
    alone: bytes


class CppOneStep(_Called):
    """Runs a single time step of every head, without a backward pass."""

    def __init__(self, spec: CellSpec, library: CDLL) -> None:
        super().__init__(spec)
        self._layouts: dict[Hashable, _CallLayout] = {}
        self._nowhere = [0] * (self.states + 1)
        count = self.inputs + 3 * self.states + len(spec.cell.slots.get("Params", ())) + 2
        self._pack = Struct(f"{count}P").pack
        self._call, self._has_threads = library.one_step, bool(library.has_threads())
        # Bytes are memory that C reads: made in half the time of an array of ctypes.
        self._call.restype, self._call.argtypes = None, [c_char_p, c_char_p]

    def __call__(
        self,
        tensors: Sequence[Tensor],
        initial_state: Sequence[Tensor] = (),
        reset: Tensor | None = None,
        out: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """y and the new state. The new state is stored in `out` if given, which may be the tensors of the old state."""
        key = (tensors[0].shape, *[x.stride() for x in tensors])
        layout = self._layouts.get(key) or get_or_compute(self._layouts, key, partial(self._layout_of, tensors))
        if layout.doubtful and any(tensors[n].is_neg() for n in layout.doubtful):
            return self([x.resolve_neg() for x in tensors], initial_state, reset, out)
        if not layout.are_read:
            tensors = [x for record in self._readable(tensors)[0] for x in record]
        y = tensors[0].new_empty(layout.shape)
        out = [torch.empty_like(x) for x in tensors[self.inputs : self.inputs + self.states]] if out is None else out
        starts = [] if reset is None else [x.contiguous() for x in (*initial_state, reset)]
        places = [x.data_ptr() for x in starts] or self._nowhere
        pointers = [*[x.data_ptr() for x in tensors], *places, y.data_ptr(), *[x.data_ptr() for x in out]]
        packed, threads = self._pack(*pointers), min(torch.get_num_threads(), layout.most)
        if threads < 2:
            self._call(packed, layout.alone)
        elif self._has_threads:
            self._call(packed, self._numbers(tensors, threads))
        else:
            share(partial(self._call_range, packed, tensors, (starts, y, out)), layout.num_heads, threads)
        return y, out

    def _call_range(self, packed: bytes, tensors: Sequence[Tensor], others: Any, first: int, last: int) -> None:
        """Runs the heads of a range in this thread. `others` are the other tensors that `packed` points to: they must
        live as long as the call."""
        self._call(packed, self._numbers(tensors, 1, first, last))

    def _layout_of(self, tensors: Sequence[Tensor]) -> _CallLayout:
        B, T, H = tensors[0].shape[:3]
        are_read = all(a is b for a, b in zip(tensors, chain(*self._readable(tensors)[0]), strict=True))
        # Numbers are negated where they are a half of complex ones, and lie two by two.
        doubtful = [n for n, x in enumerate(tensors) if not any(step % 2 for step in x.stride())]
        most = min(B * H, B * H * self.size // THREAD)
        return _CallLayout(are_read, doubtful, (B, T, H, *self.output), B * H, most, self._numbers(tensors, 1))

    def _numbers(self, tensors: Sequence[Tensor], threads: int, first: int = 0, last: int | None = None) -> bytes:
        """The numbers of a call for the heads from `first` up to `last`, by default all."""
        _, strides = self._readable(tensors)
        B, T, H = tensors[0].shape[:3]
        numbers = (B, T, H, 1, threads, first, B * H if last is None else last, *strides)
        return pack(f"{len(numbers)}q", *numbers)


class _Function(NamedTuple):
    """The function of a library, and whether it shares its work among threads by itself."""

    function: Any
    has_threads: bool

    def __call__(
        self, tensors: Sequence[Tensor | None], sizes: Sequence[int], threads: int, strides: Sequence[int]
    ) -> None:
        """Runs all heads of all members; `sizes` are batch, time, heads and steps per chunk."""
        num_heads = sizes[0] * sizes[2]

        def call(first: int, last: int, threads: int = 1) -> None:
            self.function(_pointers(tensors), _numbers((*sizes, threads, first, last, *strides)))

        if self.has_threads or threads == 1:
            call(0, num_heads, threads)
        else:
            share(call, num_heads, threads)


class CppKernel(_Called):
    """Runs the scan of a cell and its gradient."""

    def __init__(self, spec: CellSpec, libraries: Callable[[Collection[str]], Mapping[str, CDLL]]) -> None:
        super().__init__(spec)
        self._libraries = libraries
        self._directions: dict[str, _Function] = {}

    def build(self, directions: Collection[str]) -> None:
        """Loads some kernels from the cache, or builds them."""
        for direction, library in self._libraries(directions).items():
            function = getattr(library, direction)
            function.restype = None
            self._directions[direction] = _Function(function, bool(library.has_threads()))

    def forward(self, operands: Operands, keep: bool) -> list[Tensor]:
        """y, the last state, and the checkpoints of the state for the backward pass: an empty tensor unless `keep`."""
        B, T, H = operands.tensors[0].shape[:3]
        (inputs, first, params), strides = self._readable(operands.tensors)
        y = inputs[0].new_empty((B, T, H, *self.output))
        last = [torch.empty_like(x) for x in first]
        C = chunk(self.size, T)
        # Behind the end of a sequence no state is kept; what an operation returns is the same from call to call.
        make = y.new_empty if operands.lengths is None else y.new_zeros
        checkpoints = make((B * H, -(-T // C), self.size) if keep else (0,))
        named = _marks(operands, first) | {"all_in": inputs, "first_state": first, "all_param": params}
        named |= {"all_y": [y], "last_state": last, "checkpoints": [checkpoints if keep else None]}
        self._directions["forward"](in_order(FORWARD, named), (B, T, H, C), self._threads(B * H, T), strides)
        return [y, *last, checkpoints]

    def backward(
        self, operands: Operands, checkpoints: Tensor, d_y: Tensor, d_last: Sequence[Tensor | None]
    ) -> list[Tensor]:
        """The gradients of `operands.tensors` and of `operands.initial`."""
        B, T, H = operands.tensors[0].shape[:3]
        (inputs, first, params), strides = self._readable(operands.tensors)
        d_inputs, d_first = _empty_like(inputs), _empty_like(first)
        d_initial = _empty_like(operands.initial_state) if operands.initial_state else []
        d_params = [x.new_empty((B, *x.shape)) for x in params] if params else []
        named = _marks(operands, first) | {"all_in": inputs, "all_param": params}
        named |= {"checkpoints": [checkpoints], "all_d_y": [d_y.contiguous()]}
        named["last_d_state"] = [None if d is None else d.contiguous() for d in d_last]
        named |= {"all_d_in": d_inputs, "all_d_state": d_first, "all_d_param": d_params}
        named["all_initial_d_state"] = d_initial or [None] * len(first)
        self._directions["backward"](
            in_order(BACKWARD, named), (B, T, H, chunk(self.size, T)), self._threads(B * H, T), strides
        )
        d_params = [d[0] if B == 1 else d.sum(0) for d in d_params] if d_params else []
        return [*d_inputs, *d_first, *d_params, *d_initial]


def _is_dense(x: Tensor) -> bool:
    """Whether the axes after batch, time and heads are contiguous."""
    stride = 1
    for n, step in zip(reversed(x.shape[3:]), reversed(x.stride()[3:]), strict=True):
        if n != 1 and step != stride:
            return False
        stride *= n
    return True


def _empty_like(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in tensors]


def _marks(operands: Operands, state: Sequence[Tensor]) -> dict[str, Sequence[Tensor | None]]:
    """The initial state, the resets and the lengths; None in the place of a tensor that is absent."""
    _, initial_state, reset, lengths = operands
    return {
        "initial_state": [x.contiguous() for x in initial_state] if initial_state else [None] * len(state),
        "reset": [None if reset is None else reset.contiguous()],
        "lengths": [None if lengths is None else lengths.contiguous()],
    }


def _pointers(tensors: Sequence[Tensor | None]) -> Any:
    return (c_void_p * len(tensors))(*[None if x is None else x.data_ptr() for x in tensors])


@lru_cache(1000)
def _numbers(numbers: tuple[int, ...]) -> Any:
    """The numbers as an array for C. Many calls have the same numbers, and a time step takes microseconds."""
    return (c_int64 * len(numbers))(*numbers)
