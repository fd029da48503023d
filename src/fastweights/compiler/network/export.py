"""Exports one time step of a module as C files for programs without Python."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.compiler.clean_thread import alone
from fastweights.compiler.ir.network import Precision
from fastweights.compiler.network.leaves import leaves
from fastweights.compiler.network.make_program import passes_of, program_of
from fastweights.compiler.network.precision import store_weights
from fastweights.compiler.network.weights import Weights
from fastweights.compiler.targets.target import NetworkNames, target_of


def export(
    module: nn.Module,
    arguments: Mapping[str, Any],
    outputs: Sequence[str],
    text: bytes = b"",
    precision: Precision = "float32",
) -> dict[str, bytes]:
    """The C++ source, the C header and the weight file of one time step, by name.

    Args:
        module: The module.
        arguments: The arguments of an example by their names in C: tensors, and one tuple, which is the state before
            the first step.
        outputs: The names of the results in C, without the state.
        text: A text that the weight file contains, such as the tokens of a language model.
        precision: How matrices are stored.

    Raises:
        Unsupported: A part of the module does not compile. The message names it.
    """
    program, lowered, _ = alone(program_of, module, tuple(arguments.values()))
    dtype = lowered.dtype or torch.float32
    if dtype == torch.float32:
        store_weights(program, precision)
    state: Any = next(x for x in arguments.values() if isinstance(x, tuple))
    tensors = Weights(module, program, lowered.constants, dtype)
    tensors.places()
    inputs = [name for name, x in arguments.items() if isinstance(x, Tensor)]
    names = NetworkNames(inputs, outputs, list(_names(state)))
    target: Any = target_of("cpu")
    files = target.NetworkFiles(program, dtype, passes_of, names, leaves(state)[0])
    return {
        "network.cpp": files.code().encode(),
        "network.h": files.header().encode(),
        "network.weights": files.weight_file(tensors.copies, text),
    }


def _names(part: Any, name: str = "") -> Iterator[str]:
    """The names of the tensors of a state: the fields and numbers on the way to each."""
    if isinstance(part, Tensor):
        yield name or "state"
    elif part is not None:
        for key, inner in zip(getattr(part, "_fields", range(len(part))), part, strict=True):
            yield from _names(inner, f"{name}_{key}".lstrip("_"))
