"""Fast weight programmers for PyTorch: networks whose weights are a memory that is written at every time step.

An update rule or a cell is written once, in a few lines of PyTorch for one head and one time step. It runs on every
backend, with a forward and a backward pass.

Public are the names in `__all__`, here and in the packages of `PUBLIC`, and the functions and classes of the modules of
`PUBLIC` and of `adapters`. The packages export every part (`from fastweights.layers import DeltaNet`). Names are loaded
at the first access, so that the command line starts without torch.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastweights.core.version import __version__ as __version__

if TYPE_CHECKING:
    from fastweights.cell import Cell
    from fastweights.core.errors import InputError
    from fastweights.core.family import family
    from fastweights.dispatch import explain, scan
    from fastweights.experiments.load import load
    from fastweights.last_states import scan_last_states
    from fastweights.layers import FastWeight, FastWeightProgrammer, make_layer
    from fastweights.models import LanguageModel
    from fastweights.steps import compile_step

_HOMES = {
    "Cell": "cell",
    "FastWeight": "layers",
    "FastWeightProgrammer": "layers",
    "InputError": "core.errors",
    "LanguageModel": "models",
    "compile_step": "steps",
    "explain": "dispatch",
    "family": "core.family",
    "load": "experiments.load",
    "make_layer": "layers",
    "scan": "dispatch",
    "scan_last_states": "last_states",
}
PUBLIC = (
    *("adapters", "cells", "feature_maps", "functional", "inner", "inspect", "layers", "models", "normalisers"),
    *("parallel", "rate_activations", "rules", "signature", "state", "tasks", "testing", "tokenizers"),
)
"""The public modules and packages."""

__all__ = [
    "Cell",
    "FastWeight",
    "FastWeightProgrammer",
    "InputError",
    "LanguageModel",
    "compile_step",
    "explain",
    "family",
    "load",
    "make_layer",
    "scan",
    "scan_last_states",
]


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return import_module(f"fastweights.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'fastweights' has no attribute {name!r}")
    return getattr(import_module(f"fastweights.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *PUBLIC])


_IMPORTED_AFTER = {
    "torch.export.pt2_archive": "fastweights.adapters.torch_export",
    "torch.utils.flop_counter": "fastweights.compiler.flops",
}
"""Modules of torch that few programs import, and the modules here that tell them of states and operations."""


class _ImportAfter:
    """Imports a module of this library right after a module of torch, and not before."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _IMPORTED_AFTER:
            return None
        module_after = _IMPORTED_AFTER.pop(name)
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            import_module(module_after)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


for _name in _IMPORTED_AFTER.keys() & sys.modules.keys():
    import_module(_IMPORTED_AFTER.pop(_name))
sys.meta_path.insert(0, _ImportAfter)
