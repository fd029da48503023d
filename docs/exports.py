"""Writes what the packages export: every part of a folder, in the folder's `__init__.py`.

`python docs/generate.py` runs this. The docstring of a package and what it takes from files that begin with an
underscore are kept; the rest follows from the files that are there.
"""

import ast
import importlib
from pathlib import Path

import fastweights
from fastweights.catalogue import CELLS, FEATURE_MAPS, LAYERS, MODELS, NORMALISERS, RULES, SQUASHINGS, TASKS, Folder

FOLDERS = (RULES, CELLS, FEATURE_MAPS, NORMALISERS, SQUASHINGS, LAYERS, MODELS, TASKS)
ROOT = Path(fastweights.__file__).parent


def exports(folder: Folder) -> dict[str, list[str]]:
    """The names that a package exports, by the module that they come from."""
    chosen = {
        node.module: [alias.name for alias in node.names]
        for node in ast.parse((folder.path / "__init__.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"fastweights.{folder.folder}._")
    }
    parts = [folder.load(name) for name in folder.names()]
    return dict(sorted({**chosen, **{part.__module__: [part.__name__] for part in parts}}.items()))


def write_exports(folder: Folder) -> None:
    """Writes the `__init__.py` of a folder; `make format` breaks its long lines."""
    package = importlib.import_module(f"fastweights.{folder.folder}")
    found = exports(folder)
    imports = [f"from {module} import {', '.join(sorted(names))}" for module, names in found.items()]
    names = sorted(name for names in found.values() for name in names)
    listed = "".join(f'    "{name}",\n' for name in names)
    text = f'"""{package.__doc__}"""\n\n' + "\n".join(imports) + f"\n\n__all__ = [\n{listed}]\n"
    (folder.path / "__init__.py").write_text(text, encoding="utf-8")
