"""Exports calls of a module, such as one time step, as C files for programs without Python."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.compiler.clean_thread import run_in_clean_thread
from fastweights.compiler.errors import Unsupported
from fastweights.compiler.ir.network import BufferRole, NetworkProgram, Precision
from fastweights.compiler.network.leaves import leaves
from fastweights.compiler.network.make_program import passes_of, program_of
from fastweights.compiler.network.network_call import NetworkCall
from fastweights.compiler.network.precision import store_weights
from fastweights.compiler.network.weights import Weights
from fastweights.compiler.targets.target import NetworkNames, target_of


class _Compiled(NamedTuple):
    """The program of a call, its weights by name, and the dtype of real numbers."""

    program: NetworkProgram
    weights: Mapping[str, Tensor]
    dtype: torch.dtype


def export(calls: Mapping[str, NetworkCall], text: bytes = b"", precision: Precision = "float32") -> dict[str, bytes]:
    """The C++ source, the C header and the weight file of a network, by name.

    Args:
        calls: The calls by name. Call `name` becomes the function `network_name`. The first one is "step", one time
            step. All calls have the same state, and weights with the same name are the same.
        text: A text that the weight file contains, such as the tokens of a language model.
        precision: How matrices are stored.

    Raises:
        Unsupported: A part of a call does not compile. The message names it.
    """
    compiled = _compile_all(calls, precision)
    state = calls["step"].state
    names = {name: NetworkNames(calls[name].inputs, calls[name].outputs, list(_names(state))) for name in compiled}
    target: Any = target_of("cpu")
    programs = {name: one.program for name, one in compiled.items()}
    files = target.NetworkFiles(programs, compiled["step"].dtype, passes_of, names, leaves(state)[0])
    weights = {name: x for one in compiled.values() for name, x in one.weights.items()}
    return {
        "network.cpp": files.code().encode(),
        "network.h": files.header().encode(),
        "network.weights": files.weight_file(weights, text),
    }


def _compile_all(calls: Mapping[str, NetworkCall], precision: Precision) -> dict[str, _Compiled]:
    """The programs of all calls by name, without optional calls that do not compile."""
    compiled: dict[str, _Compiled] = {}
    for name, call in calls.items():
        try:
            one = _compiled(call, precision, prefix=f"{name}." if compiled else "")
            _require_same_types(one.program, compiled)
        except Unsupported:
            if not call.is_optional:
                raise
        else:
            compiled[name] = one
    return compiled


def _compiled(call: NetworkCall, precision: Precision, prefix: str) -> _Compiled:
    """The program of a call. `prefix` is put before the names of its constants."""
    program, lowered, _ = run_in_clean_thread(program_of, call.module, tuple(call.arguments.values()))
    dtype = lowered.dtype or torch.float32
    for buffer in program.of(BufferRole.WEIGHT):
        if buffer.name in lowered.constants:
            buffer.name = prefix + buffer.name
    if dtype == torch.float32:
        store_weights(program, precision)
    constants = {prefix + name: x for name, x in lowered.constants.items()}
    tensors = Weights(call.module, program, constants, dtype)
    tensors.places()
    return _Compiled(program, tensors.copies, dtype)


def _require_same_types(program: NetworkProgram, others: Mapping[str, _Compiled]) -> None:
    """Raises unless every weight has the same type as in the other programs."""
    types = {b.name: b.type for one in others.values() for b in one.program.of(BufferRole.WEIGHT)}
    for buffer in program.of(BufferRole.WEIGHT):
        if buffer.type != types.get(buffer.name, buffer.type):
            raise Unsupported(f"the weight {buffer.name} in two precisions", "", "weights in float32")


def _names(part: Any, name: str = "") -> Iterator[str]:
    """The names of the tensors of a state: the fields and numbers on the way to each."""
    if isinstance(part, Tensor):
        yield name or "state"
    elif part is not None:
        for key, inner in zip(getattr(part, "_fields", range(len(part))), part, strict=True):
            yield from _names(inner, f"{name}_{key}".lstrip("_"))
