"""fastweights: neural networks whose weights are a memory that the network writes while it reads.

A memory is written once, as a few lines of plain PyTorch for one head and one step (a cell), and runs everywhere.

Public is what `__all__` lists, here and in the packages `cells`, `feature_maps`, `layers`, `models`, `normalisers`,
`rules`, `rate_activations` and `tasks`, which export every part (`from fastweights.layers import DeltaNet`), and what
`adapters.fla`, `adapters.transformers` and the modules `functional`, `inner`, `parallel`, `signature` and
`testing` hold. Names are loaded when they are first used, so that the command line answers before torch is imported.
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
}
_MODULES = (
    *("adapters", "cells", "feature_maps", "functional", "inner", "layers", "models", "normalisers"),
    *("parallel", "rules", "signature", "rate_activations", "tasks", "testing"),
)

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
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fastweights.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'fastweights' has no attribute {name!r}")
    return getattr(import_module(f"fastweights.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_MODULES])


_IMPORTED_AFTER = {
    "torch.export.pt2_archive": "fastweights.adapters.torch_export",
    "torch.utils.flop_counter": "fastweights.compiler.flops",
}
"""Modules of torch that few programs import, and the modules here that tell them of states and operations."""


class _Beside:
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
sys.meta_path.insert(0, _Beside)
