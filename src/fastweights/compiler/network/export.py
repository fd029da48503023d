"""Exports one time step of a module as C files for programs without Python."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.compiler.clean_thread import alone
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.network import BufferRole, NetworkProgram, Precision
from fastweights.compiler.network.leaves import leaves
from fastweights.compiler.network.make_program import passes_of, program_of
from fastweights.compiler.network.precision import store_weights
from fastweights.compiler.network.weights import Weights
from fastweights.compiler.targets.target import NetworkNames, target_of


class _Compiled(NamedTuple):
    """The program of a call, its weights by name, and the dtype of real numbers."""

    program: NetworkProgram
    weights: Mapping[str, Tensor]
    dtype: torch.dtype


def export(
    module: nn.Module,
    arguments: Mapping[str, Any],
    outputs: Sequence[str],
    text: bytes = b"",
    precision: Precision = "float32",
    chunk: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """The C++ source, the C header and the weight file of one time step, by name.

    Args:
        module: The module.
        arguments: The arguments of an example by their names in C: tensors, and one tuple, which is the state before
            the first step.
        outputs: The names of the results in C, without the state.
        text: A text that the weight file contains, such as the tokens of a language model.
        precision: How matrices are stored.
        chunk: The arguments of a call with several time steps, which becomes the function `network_chunk`. The function
            is left out if a part of that call does not compile.

    Raises:
        Unsupported: A part of the module does not compile. The message names it.
    """
    step = _compiled(module, arguments, precision)
    several = None if chunk is None else _compiled_chunk(module, chunk, precision, step)
    state: Any = next(x for x in arguments.values() if isinstance(x, tuple))
    inputs = [name for name, x in arguments.items() if isinstance(x, Tensor)]
    names = NetworkNames(inputs, outputs, list(_names(state)))
    target: Any = target_of("cpu")
    program = None if several is None else several.program
    files = target.NetworkFiles(step.program, step.dtype, passes_of, names, leaves(state)[0], program)
    weights = {**step.weights, **({} if several is None else several.weights)}
    return {
        "network.cpp": files.code().encode(),
        "network.h": files.header().encode(),
        "network.weights": files.weight_file(weights, text),
    }


def _compiled(module: nn.Module, arguments: Mapping[str, Any], precision: Precision, prefix: str = "") -> _Compiled:
    """The program of a call. `prefix` is put before the names of its constants."""
    program, lowered, _ = alone(program_of, module, tuple(arguments.values()))
    dtype = lowered.dtype or torch.float32
    for buffer in program.of(BufferRole.WEIGHT):
        if buffer.name in lowered.constants:
            buffer.name = prefix + buffer.name
    if dtype == torch.float32:
        store_weights(program, precision)
    constants = {prefix + name: x for name, x in lowered.constants.items()}
    tensors = Weights(module, program, constants, dtype)
    tensors.places()
    return _Compiled(program, tensors.copies, dtype)


def _compiled_chunk(
    module: nn.Module, arguments: Mapping[str, Any], precision: Precision, step: _Compiled
) -> _Compiled | None:
    """The program of several time steps; None if it does not compile, or stores a weight in another precision."""
    try:
        chunk = _compiled(module, arguments, precision, "chunk.")
    except Unsupported:
        return None
    types = {b.name: b.type for b in step.program.of(BufferRole.WEIGHT)}
    fits = all(b.type == types.get(b.name, b.type) for b in chunk.program.of(BufferRole.WEIGHT))
    return chunk if fits else None


def _names(part: Any, name: str = "") -> Iterator[str]:
    """The names of the tensors of a state: the fields and numbers on the way to each."""
    if isinstance(part, Tensor):
        yield name or "state"
    elif part is not None:
        for key, inner in zip(getattr(part, "_fields", range(len(part))), part, strict=True):
            yield from _names(inner, f"{name}_{key}".lstrip("_"))
