"""What a target must do, and which one makes kernels for a device. Targets stand side by side, a folder each."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fastweights.cell import Cell

WAYS = ("forward", "backward")
"""Those over time."""
TARGETS = {"cpu": "cpp", "cuda": "triton"}
"""The folder of the target for every type of device that has one."""
CHIPS = dict.fromkeys(("sm_80", "sm_90", "sm_100", "gfx942"), "cuda")
"""Chips that need not be here to compile for: A100, H100 and H200, B200, MI300; and their type of device."""


class Operands(NamedTuple):
    """The tensors that a kernel reads in both passes.

    `tensors` are the inputs `[B, T, H, ...]`, the state `[B, H, ...]` and the params `[H, ...]`, one after the other.
    `initial` is the state `[B, H, ...]` after a reset, empty without resets.
    """

    tensors: Sequence[Tensor]
    initial: Sequence[Tensor]
    reset: Tensor | None
    lengths: Tensor | None


class Kernel(Protocol):
    """Runs the forward and the backward pass of a cell over time, once they are built."""

    def build(self, ways: Collection[str]) -> None:
        """Builds some of the `WAYS`, or takes them from the cache.

        Raises:
            Unsupported: the cell leaves the subset that compiles.
            Unbuilt: the machine lacks what builds kernels, or that fails.
        """

    def forward(self, operands: Operands, keep: bool) -> list[Tensor]:
        """y, the last state, and the checkpoints of the state for the backward pass: an empty tensor unless `keep`."""

    def backward(
        self, operands: Operands, checkpoints: Tensor, d_y: Tensor, d_last: Sequence[Tensor | None]
    ) -> list[Tensor]:
        """The gradients of `operands.tensors` and of `operands.initial`."""


class OneStep(Protocol):
    """Runs one step of every head without a way back."""

    def __call__(
        self,
        tensors: Sequence[Tensor],
        initial: Sequence[Tensor] = (),
        reset: Tensor | None = None,
        out: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """y and the new state, in `out` if that is given, which may be the tensors of the old one."""


class Target(Protocol):
    """What the module `compiler/NAME/target.py` has."""

    def missing_requirement(self) -> str:
        """Why this machine can build no kernel, with a remedy; empty if it can: its compiler was tried, once."""

    def source(self, cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> str:
        """The code of a cell's kernels. Raises `Unsupported` if the cell leaves the subset that compiles."""

    def kernel(self, cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, text: str) -> Kernel:
        """The kernel of a cell whose step does what `text` says. Raises as building it does."""

    def one_step(self, cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, text: str) -> OneStep | None:
        """That of one step by itself, built; None where the target has none. Raises as building does."""


def target_of(device: str) -> Target:
    """The target for a type of device; only for one of `TARGETS`."""
    module: Any = import_module(f"{__package__}.{TARGETS[device]}.target")
    return module


def report(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, chip: str, heads: int) -> str:
    """What the kernels of a cell come to on one of `CHIPS` for so many heads of all members together, and its source.

    Raises:
        Unsupported: the cell leaves the subset that compiles.
        Unbuilt: this machine lacks what builds kernels, or that fails.
    """
    module: Any = target_of(CHIPS[chip])
    return str(module.report(cell, sizes, dtype, chip, heads))


def write(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype, folder: Path) -> list[Path]:
    """Writes a cell as C++ with a C interface, forward only, to be built and run without Python; returns the files.

    `NAME.cpp`, `NAME.h`, which says what is called and with what, and `example.c`; any compiler of the kind of GCC or
    Clang builds them, for any CPU.

    Raises:
        Unsupported: the cell leaves the subset that compiles.
    """
    module: Any = target_of("cpu")
    return list(module.write(cell, sizes, dtype, folder))


@cache
def fingerprint(target: str) -> str:
    """The digest of all code that makes the kernels of a target: other code makes other kernels of the same step."""
    root, digest = Path(__file__).parents[1], sha256()
    others = {root / "targets" / name for name in TARGETS.values() if name != target}
    for file in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".h")):
        if others.isdisjoint(file.parents):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def title(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> str:
    """What a source says that it is of."""
    axes = ", ".join(f"{axis}={size}" for axis, size in sorted(sizes.items()))
    return f"{cell.name} with {axes} in {str(dtype).removeprefix('torch.')}"
