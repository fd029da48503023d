"""The interface of a target, and the choice of the target for a device. Every target has its own folder."""

from collections.abc import Callable, Collection, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.ir.step_map import StepMap
from fastweights.compiler.targets.cell_spec import CellSpec

DIRECTIONS = ("forward", "backward")
"""The kernels of a scan. The backward kernel contains the recompute pass and the backward pass."""
TARGETS = {"cpu": "cpp", "cuda": "triton"}
"""The folder of the target for every supported type of device."""
CHIPS = dict.fromkeys(("sm_80", "sm_90", "sm_100", "gfx942"), "cuda")
"""Chips that kernels can be compiled for without the chip: A100, H100 and H200, B200, MI300; and the type of device."""


class Operands(NamedTuple):
    """The tensors that a kernel reads in both passes.

    `tensors` are the inputs `[B, T, H, ...]`, the state `[B, H, ...]` and the params `[H, ...]`, one after the other.
    `initial_state` is the state `[B, H, ...]` after a reset, empty without resets.
    """

    tensors: Sequence[Tensor]
    initial_state: Sequence[Tensor]
    reset: Tensor | None
    lengths: Tensor | None


class Kernel(Protocol):
    """Runs the forward and the backward pass of a cell over time, once they are built."""

    def build(self, directions: Collection[str]) -> None:
        """Builds some of the kernels in `DIRECTIONS`, or loads them from the cache.

        Raises:
            Unsupported: The cell leaves the subset of PyTorch that compiles.
            Unbuilt: The machine lacks the tools that build kernels, or a tool fails.
        """

    def forward(self, operands: Operands, keep: bool) -> list[Tensor]:
        """y, the last state, and the checkpoints of the state for the backward pass: an empty tensor unless `keep`."""

    def backward(
        self, operands: Operands, checkpoints: Tensor, d_y: Tensor, d_last: Sequence[Tensor | None]
    ) -> list[Tensor]:
        """The gradients of `operands.tensors` and of `operands.initial`."""


class OneStep(Protocol):
    """Runs a single time step of every head, without a backward pass."""

    def __call__(
        self,
        tensors: Sequence[Tensor],
        initial_state: Sequence[Tensor] = (),
        reset: Tensor | None = None,
        out: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """y and the new state. The new state is stored in `out` if given, which may be the tensors of the old state."""


class SoftmaxKernel(Protocol):
    """The softmax over the rows of contiguous logits `[rows, columns]`, without a copy of them."""

    def log_sum_exp(self, logits: Tensor) -> Tensor:
        """The log-sum-exps `[rows]`, in float32."""

    def gradient_(
        self, logits: Tensor, totals: Tensor, d_totals: Tensor, d_chosen: Tensor, chosen: Tensor, d_bias: Tensor
    ) -> Tensor:
        """Replaces logits by their gradient, and adds its sums over the rows to `d_bias`.

        Args:
            logits: Logits `[rows, columns]`.
            totals: Their log-sum-exps `[rows]`.
            d_totals: Gradient of the log-sum-exps `[rows]`.
            d_chosen: Gradient of one chosen logit per row `[rows]`.
            chosen: Its column, int64 `[rows]`.
            d_bias: Sums `[columns]` to add to, in float32.
        """


class MapKernel(Protocol):
    """Runs a `StepMap` and its gradient for all time steps, which do not depend on each other."""

    @property
    def differentiated(self) -> Sequence[int]:
        """The indices of the outputs whose gradients are read: computed ones, and copies of inputs that are read."""

    def forward(self, inputs: Sequence[Tensor], params: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
        """The computed outputs `[B, T parts, H, ...]`.

        Args:
            inputs: The inputs and the marks `[B, T, H, ...]`, of any floating dtype or bool.
            params: The params `[H, ...]`.
            dtype: The dtype of the outputs.
        """

    def backward(
        self, inputs: Sequence[Tensor], params: Sequence[Tensor], d_outputs: Sequence[Tensor]
    ) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """The gradients of the inputs that are read, and of the params, by index.

        Args:
            inputs: The inputs and the marks.
            params: The params.
            d_outputs: The gradients of the `differentiated` outputs.
        """


class BuiltNetwork(NamedTuple):
    """A built network program.

    Args:
        function: Takes the packed addresses of the program's arguments and of scratch memory, and a number of threads.
            It returns 0, or 1 for an index outside of a table.
        shared: Elements of scratch memory of all threads together.
        private: Elements of scratch memory of each thread.
    """

    function: Callable[[bytes, int], int]
    shared: int
    private: int


class NetworkNames(NamedTuple):
    """The names of the tensors of a network program in C, in the order of its buffers."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    states: Sequence[str]


class Target(Protocol):
    """The functions of the module `targets/NAME/target.py`. A target lowers `passes`; it does not trace the cell.

    Targets take `passes` as a function where the cache may make them unnecessary.
    """

    def missing_requirement(self) -> str:
        """The reason why this machine can build no kernel, with a remedy; empty if the tools work."""

    def source(self, spec: CellSpec, passes: Passes) -> str:
        """The source text of a cell's kernels."""

    def kernel(self, spec: CellSpec, text: str, passes: Callable[[], Passes]) -> Kernel:
        """The kernel of a cell. `text` identifies the step in the cache. Raises the errors of `Kernel.build`."""

    def one_step(self, spec: CellSpec, text: str, passes: Callable[[], Passes]) -> OneStep | None:
        """The built kernel of a single time step; None if the target has no such kernel. Raises the same errors."""

    def step_map(self, function: StepMap, title: str, dtype: torch.dtype) -> MapKernel | None:
        """The kernel of a function for all time steps, computed in a dtype; None if the target has no such kernel."""

    def softmax(self, dtype: torch.dtype) -> SoftmaxKernel | None:
        """The built softmax for logits of a dtype; None if the target has no such kernel. Raises `Unbuilt`."""


def target_of(device: str) -> Target:
    """The target for a type of device, which must be in `TARGETS`."""
    module: Any = import_module(f"{__package__}.{TARGETS[device]}.target")
    return module


@cache
def fingerprint(target: str) -> str:
    """A digest of all code that determines the kernels of a target. A change of the code invalidates cached kernels."""
    root, digest = Path(__file__).parents[1], sha256()
    networks = [root / "network", root / "targets" / target / "network"]  # they do not determine kernels of cells
    others = {*networks, *(root / "targets" / name for name in TARGETS.values() if name != target)}
    for file in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".h")):
        if others.isdisjoint(file.parents):
            digest.update(file.read_bytes())
    return digest.hexdigest()
