"""Launches the kernels of a function of one time step for all time steps."""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from fastweights.compiler.ir.step_map import StepMap
from fastweights.compiler.targets.triton.map_source import MapSource
from fastweights.compiler.targets.triton.occupancy import (
    OPTIONS,
    POINTERS,
    Assembled,
    assemble_function,
    loaded,
    target_of,
)


class TritonMap:
    """Runs a function of one time step, and its gradient, for all time steps."""

    def __init__(self, function: StepMap, title: str, dtype: torch.dtype) -> None:
        self.function, self.source, self.dtype = function, MapSource(function, title, dtype), dtype
        self.tables: dict[torch.device, Tensor] = {}

    @property
    def differentiated(self) -> Sequence[int]:
        """The indices of the outputs whose gradients are read: computed ones, and copies of inputs that are read."""
        return self.source.outputs

    def forward(self, inputs: Sequence[Tensor], params: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
        """The computed outputs `[B, T parts, H, ...]`, in a dtype."""
        (B, T, H), named = inputs[0].shape[:3], dict[str, Tensor]()
        for n in self.function.computed:
            parts = self.function.outputs[n]
            named[f"out_{n}"] = inputs[0].new_empty((B, T * len(parts), H, *parts[0].shape), dtype=dtype)
        self._launch("forward", inputs, params, named)
        return [*named.values()]

    def backward(
        self, inputs: Sequence[Tensor], params: Sequence[Tensor], d_outputs: Sequence[Tensor]
    ) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """The gradients of inputs and of params by index, from those of the `outputs` of the source."""
        source, (B, T) = self.source, inputs[0].shape[:2]
        blocks = -(-T // source.steps("backward"))
        d_inputs = {n: self._memory(inputs[n]) for n in source.differentiable}
        d_params = {n: params[n].new_empty(B * blocks, *params[n].shape) for n in source.params}
        named = {f"d_out_{n}": d.contiguous() for n, d in zip(source.outputs, d_outputs, strict=True)}
        named |= {f"d_in_{n}": d for n, d in d_inputs.items()} | {f"d_param_{n}": d for n, d in d_params.items()}
        if source.has_gradients:
            self._launch("backward", inputs, params, named)
        d_inputs = {n: d for n, d in d_inputs.items() if inputs[n].is_floating_point()}
        return d_inputs, {n: d.sum(0) for n, d in d_params.items()}

    def _memory(self, x: Tensor) -> Tensor:
        """Memory for the gradient of an input."""
        return x.new_empty(x.shape, dtype=x.dtype if x.is_floating_point() else self.dtype)

    def _launch(
        self, kernel: str, inputs: Sequence[Tensor], params: Sequence[Tensor], named: dict[str, Tensor]
    ) -> None:
        source, like, (B, T, H) = self.source, inputs[0], inputs[0].shape[:3]
        programs = B * -(-T // source.steps(kernel)) * H
        read = {
            n: x if x[0, 0, 0].is_contiguous() else x.contiguous() for n, x in enumerate(inputs) if n in source.inputs
        }
        named |= {f"in_{n}": x.view(torch.uint8) if x.dtype == torch.bool else x for n, x in read.items()}
        named |= {f"param_{n}": params[n].contiguous() for n in source.params}
        named |= {
            "tables": self._table(like),
            "memory": like.new_empty(max(1, programs * source.memory), dtype=self.dtype),
        }
        strides = [stride for x in read.values() for stride in x.stride()[:3]]
        with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
            function = getattr(loaded(source.text), kernel)[(programs,)]
            function(
                *(named[name] for name in source.tensors(kernel)), *strides, T, H, num_warps=source.warps, **OPTIONS
            )

    def _table(self, like: Tensor) -> Tensor:
        """The constant tensors of the function, once per device."""
        if like.device not in self.tables:
            numbers = self.source.numbers or [0.0]
            self.tables[like.device] = torch.tensor(numbers, dtype=self.dtype, device=like.device)
        return self.tables[like.device]

    def assembled(self, kernel: str, dtypes: Sequence[torch.dtype], chip: str) -> Assembled:
        """A kernel compiled for a chip that need not be present, for inputs of some dtypes.

        Raises:
            Unbuilt: The compiler fails.
        """
        source = self.source
        types = dict.fromkeys(source.tensors(kernel), POINTERS[self.dtype])
        types |= {f"{prefix}in_{n}": POINTERS[dtypes[n]] for n in source.inputs for prefix in ("", "d_")}
        types = {name: types[name] for name in source.tensors(kernel)} | dict.fromkeys(
            (*source.strides, "T", "H"), "i64"
        )
        function = getattr(loaded(source.text), kernel)
        return assemble_function(function, types, {}, target_of(chip), source.warps, source.title)
