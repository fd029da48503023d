"""Builds the C++ of a network program, or finds it in the cache."""

from collections.abc import Callable
from ctypes import c_char_p, c_int

import torch

from fastweights.compiler.ir.network import NetworkProgram
from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.cpp import build
from fastweights.compiler.targets.cpp.cpu import lanes
from fastweights.compiler.targets.cpp.network.emit import LIBRARY, source
from fastweights.compiler.targets.target import BuiltNetwork


def network(program: NetworkProgram, dtype: torch.dtype, passes: Callable[[CellSpec], Passes]) -> BuiltNetwork:
    """The built function of a network program.

    Raises:
        Unsupported: A cell leaves the subset of PyTorch that compiles.
        Unbuilt: There is no C++ compiler, or it fails.
    """
    made = source(program, dtype, lanes(dtype), passes, LIBRARY)
    stem = build.stem("network", build.source_digest(made.text))
    function = (build.load(stem) or build.build(made.text, stem)).network_step
    function.restype, function.argtypes = c_int, [c_char_p, c_int]
    return BuiltNetwork(function, made.shared, made.private)
