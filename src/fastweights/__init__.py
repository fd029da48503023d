"""fastweights: neural networks whose weights are a memory that the network writes while it reads.

A memory is written once, as a few lines of plain PyTorch for one head and one step (a cell), and runs everywhere.
Names are loaded when they are first used, so that the command line answers before torch is imported.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fastweights.cell import Cell
    from fastweights.dispatch import explain, scan
    from fastweights.errors import InputError

_HOMES = {"Cell": "cell", "InputError": "errors", "explain": "dispatch", "scan": "dispatch"}

__all__ = ["Cell", "InputError", "explain", "scan"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fastweights' has no attribute {name!r}")
    return getattr(import_module(f"fastweights.{_HOMES[name]}"), name)


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
