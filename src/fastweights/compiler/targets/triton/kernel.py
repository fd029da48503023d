"""Launches the kernels of a cell with tensors."""

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.targets.arguments import in_order
from fastweights.compiler.targets.checkpointing import chunk_on_gpu
from fastweights.compiler.targets.target import Operands
from fastweights.compiler.targets.triton.occupancy import OPTIONS, Assembled, chip_here, choose, loaded
from fastweights.compiler.targets.triton.source import ARGUMENTS, BLOCK, FULL, TritonSource, sourced

INTERPRETED = Assembled(warps=1, registers=0, spills=0, shared=0)
"""The result of a compilation, with one warp, for the interpreter, which compiles nothing."""
LONG = 16
"""The number of steps from which tensors are computed ahead. For fewer, another launch takes longer than it saves."""


class TritonKernel:
    """Runs the forward and the backward pass of a cell over time."""

    def __init__(self, passes: Passes, title: str, dtype: torch.dtype) -> None:
        self.passes, self.step, self.title, self.dtype = passes, passes.step, title, dtype
        self.size = sum(d.size for d in self.step.state.values())
        self.sources: dict[tuple[int, bool], TritonSource] = {}
        self.tables: dict[torch.device, Tensor] = {}

    def build(self, directions: Collection[str]) -> None:
        """Compiles some kernels for the current chip, for many heads."""
        for direction in directions if torch.cuda.is_available() else ():
            choose(self._source(FULL, LONG), direction, chip_here())

    def forward(self, operands: Operands, keep: bool) -> list[Tensor]:
        """y, the last state, and the checkpoints of the state for the backward pass: an empty tensor unless `keep`."""
        tensors, initial_state, reset, lengths = operands
        B, T, H = tensors[0].shape[:3]
        inputs, state, params = self._parts(tensors)
        # Behind the end of a sequence nothing is stored, and what an operation returns is the same from call to call.
        make = inputs[0].new_empty if lengths is None else inputs[0].new_zeros
        y = make((B, T, H, *self.step.y.shape))
        last = [torch.empty_like(x) for x in state]
        checkpoints = make((B * H, -(-T // chunk_on_gpu(self.size, T, B * H)), self.size) if keep else (0,))
        named = self._shared_arguments(inputs, params, initial_state or state, reset, lengths)
        named |= {"first_state": state, "all_y": [y], "last_state": last, "checkpoints": [checkpoints]}
        self._launch("forward", named, keep)
        return [y, *last, checkpoints]

    def backward(
        self, operands: Operands, checkpoints: Tensor, d_y: Tensor, d_last: Sequence[Tensor | None]
    ) -> list[Tensor]:
        """The gradients of `operands.tensors` and of `operands.initial`."""
        tensors, initial_state, reset, lengths = operands
        B, T, H = tensors[0].shape[:3]
        inputs, state, params = self._parts(tensors)
        source = self._source(B * H, T)
        parts = {kind: self._cuts(source, kind) for kind in ("inputs", "params", "state")}
        d_inputs = [_room(x, 3, n, lengths is not None) for x, n in zip(inputs, parts["inputs"], strict=True)]
        d_params = [_room(x.expand(B, *x.shape), 2, n) for x, n in zip(params, parts["params"], strict=True)]
        d_state = [_room(x, 2, n) for x, n in zip(state, parts["state"], strict=True)]
        # The kernel adds the gradients at resets to that of the initial state in place.
        d_initial = [_room(x, 2, n, True) for x, n in zip(initial_state, parts["state"], strict=False)]
        back = [torch.zeros_like(x) if d is None else d.contiguous() for d, x in zip(d_last, state, strict=True)]
        named = self._shared_arguments(inputs, params, initial_state or state, reset, lengths)
        named |= {"checkpoints": [checkpoints], "all_d_y": [d_y.contiguous()], "last_d_state": back}
        named |= {"all_d_in": d_inputs, "all_d_state": d_state, "all_d_param": d_params}
        named["all_initial_d_state"] = d_initial or d_state
        named["chunk"] = [_scratch(B * H * chunk_on_gpu(self.size, T, B * H) * source.chunk_numbers, d_y)]
        self._launch("backward", named, True)
        results = [_summed(d, x.ndim, 3) for d, x in zip(d_inputs, inputs, strict=True)]
        results += [_summed(d, x.ndim, 2) for d, x in zip(d_state, state, strict=True)]
        results += [_summed(d, x.ndim + 1, 2).sum(0) for d, x in zip(d_params, params, strict=True)]
        return [*results, *(_summed(d, x.ndim, 2) for d, x in zip(d_initial, initial_state, strict=True))]

    def _source(self, num_heads: int, T: int) -> TritonSource:
        """The source for a number of heads, counted over the batch, and of time steps."""
        key = num_heads, T >= LONG
        if key not in self.sources:
            source = sourced(self.passes, self.title, self.dtype, *key)
            # Where a program has the same rows, the code is the same.
            same = (s for s in self.sources.values() if (s.rows, s.ahead) == (source.rows, source.ahead))
            self.sources[key] = next(same, source)
        return self.sources[key]

    def _cuts(self, source: TritonSource, kind: str) -> list[int]:
        """The number of parts of each gradient of a kind; 0 for a gradient that one program computes."""
        named = self.step.gradients[kind]
        parted = [source.is_private(n) if kind == "state" else source.is_part(v) for n, v in named.items()]
        return [source.cuts if part else 0 for part in parted]

    def _parts(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        first = len(self.step.inputs)
        then = first + len(self.step.state)
        inputs = [x if x[0, 0, 0].is_contiguous() else x.contiguous() for x in tensors[:first]]
        rest = [x.contiguous() for x in tensors[first:]]
        return inputs, rest[: then - first], rest[then - first :]

    def _shared_arguments(
        self,
        inputs: Sequence[Tensor],
        params: Sequence[Tensor],
        initial_state: Sequence[Tensor],
        reset: Tensor | None,
        lengths: Tensor | None,
    ) -> dict[str, Sequence[Tensor | None]]:
        """The arguments that both kernels take."""
        return {
            "all_in": inputs,
            "all_param": params,
            "initial_state": [x.contiguous() for x in initial_state],
            "reset": [None if reset is None else reset.contiguous().view(torch.uint8)],
            # The lengths were not checked, because that would wait for the device.
            "lengths": [None if lengths is None else lengths.clamp(0, inputs[0].shape[1])],
        }

    def _launch(self, direction: str, named: dict[str, Sequence[Tensor | None]], keep: bool) -> None:
        """Runs the kernel of a pass, behind the kernel of the tensors that are computed ahead, if there are any."""
        inputs: Sequence[Any] = named["all_in"]
        like, (B, T, H) = inputs[0], inputs[0].shape[:3]
        source = self._source(B * H, T)
        programs = {"prepare": B * -(-T // BLOCK) * H, direction: B * H * source.cuts}
        prepared, memory = B * T * H * source.prepared_numbers, programs[direction] * source.memory
        named |= {"prepared": [_scratch(prepared, like)], "memory": [_scratch(memory, like)]}
        named["tables"] = [self._table(source, like)]
        numbers = [*(n for x in inputs for n in x.stride()[:3]), T, H, chunk_on_gpu(self.size, T, B * H)]
        flags = [keep, *(named[name][0] is not None for name in ("reset", "lengths"))]
        with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
            chosen = choose(source, direction, chip_here()) if like.is_cuda else INTERPRETED
            flags.append(chosen.loads_ahead)
            for name, warps in [("prepare", 1)] * bool(source.ahead) + [(direction, chosen.warps)]:
                # A pointer that nothing reads points anywhere.
                pointers = [like if x is None else x for x in in_order(ARGUMENTS[name], named)]
                kernel = getattr(loaded(source.text), name)[(programs[name],)]
                kernel(*pointers, *numbers, *flags, num_warps=warps, **OPTIONS)

    def _table(self, source: TritonSource, like: Tensor) -> Tensor:
        """The constant tensors of the cell, once per device."""
        if like.device not in self.tables:
            self.tables[like.device] = torch.tensor(source.numbers or [0.0], dtype=like.dtype, device=like.device)
        return self.tables[like.device]


def _scratch(size: int, like: Tensor) -> Tensor:
    """Uninitialised memory for a kernel, which writes it before it reads it."""
    return like.new_empty(max(size, 1))


def _room(x: Tensor, leading: int, parts: int, zeros: bool = False) -> Tensor:
    """Memory for the gradient of a tensor, with an axis for `parts` of a sum behind its leading axes."""
    shape = (*x.shape[:leading], *([parts] if parts else []), *x.shape[leading:])
    return x.new_zeros(shape) if zeros else x.new_empty(shape)


def _summed(x: Tensor, rank: int, axis: int) -> Tensor:
    """The sum over the parts of a gradient, if it has any, always in the same order."""
    return x.sum(axis) if x.ndim > rank else x
