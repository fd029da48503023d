"""Makes the program of one time step of a module: trace, lower, group."""

from typing import Any

import torch
from torch import nn

from fastweights.compiler import pipeline
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.network import NetworkProgram
from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.network.group import group
from fastweights.compiler.network.leaves import leaves
from fastweights.compiler.network.lower import Lowered, lower
from fastweights.compiler.network.trace import trace
from fastweights.compiler.targets.cell_spec import CellSpec


def program_of(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[NetworkProgram, Lowered, Any]:
    """The program, what it was made of, and the structure of the results."""
    at = next(n for n, argument in enumerate(arguments) if isinstance(argument, tuple))
    before, states = len(leaves(arguments[:at])[0]), _kinds(arguments[at])
    traced = trace(module, arguments)
    lowered = lower(traced, range(before, before + len(states)))
    results = leaves(traced.results)[0]
    first = len(results) - len(states)
    if states != _kinds(traced.results[-1]):
        raise Unsupported("a state that changes its shape or type from step to step", "", "a state of one shape")
    program = group(lowered, f"One step of {type(module).__name__}", range(first, len(results)))
    return program, lowered, traced.results


def passes_of(spec: CellSpec) -> Passes:
    """The passes of a cell of a program."""
    return pipeline.passes(spec.cell, spec.sizes, spec.dtype)


def _kinds(state: Any) -> list[tuple[tuple[int, ...], torch.dtype]]:
    return [(tuple(x.shape), x.dtype) for x in leaves(state)[0]]
