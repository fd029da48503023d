"""fastweights: neural networks whose weights are a memory that the network writes while it reads.

A memory is written once, as a few lines of plain PyTorch for one head and one step (a cell), and runs everywhere.

Public is what `__all__` lists, here and in the packages `cells`, `feature_maps`, `layers`, `models`, `normalisers`,
`rules`, `squashings` and `tasks`, which export every part (`from fastweights.layers import DeltaNet`), and what
`adapters.fla`, `adapters.transformers` and the modules `functional`, `inner`, `parallel`, `signature` and
`testing` hold. Names are loaded when they are first used, so that the command line answers before torch is imported.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fastweights.cell import Cell
    from fastweights.dispatch import explain, scan
    from fastweights.errors import InputError
    from fastweights.families import family
    from fastweights.layers import FastWeight, FastWeightProgrammer, make_layer
    from fastweights.models import LanguageModel
    from fastweights.trained import load

_HOMES = {
    "Cell": "cell",
    "FastWeight": "layers",
    "FastWeightProgrammer": "layers",
    "InputError": "errors",
    "LanguageModel": "models",
    "explain": "dispatch",
    "family": "families",
    "load": "trained",
    "make_layer": "layers",
    "scan": "dispatch",
}
_MODULES = (
    *("adapters", "cells", "feature_maps", "functional", "inner", "layers", "models", "normalisers"),
    *("parallel", "rules", "signature", "squashings", "tasks", "testing"),
)

__all__ = [
    "Cell",
    "FastWeight",
    "FastWeightProgrammer",
    "InputError",
    "LanguageModel",
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


class _BeforeExportedPrograms:
    """Imports what exported programs name just before torch reads or writes the first one, and not if it never does."""

    READER = "torch.export.pt2_archive"

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> None:
        if name == cls.READER:
            sys.meta_path.remove(cls)
            import_module("fastweights.exported")


if _BeforeExportedPrograms.READER in sys.modules:
    import_module("fastweights.exported")
else:
    sys.meta_path.insert(0, _BeforeExportedPrograms)
