"""Writes what the packages export: every part of a folder, in the folder's `__init__.py`.

Run `python docs/exports.py` after a file was added, renamed or removed, or `make generate`, which writes the pages as
well. The docstring of a package stays, and so do its imports from files that begin with an underscore and from the
folders `kinds`, `sources`, `base` and `wrappers`. The rest follows from the files. The tests hold the packages to it.
"""

import ast
from pathlib import Path

from fastweights.registry import (
    CELLS,
    FEATURE_MAPS,
    LAYERS,
    MODELS,
    NORMALISERS,
    RATE_ACTIVATIONS,
    RULES,
    TASKS,
    TOKENIZERS,
    Folder,
    matches,
)

DESCRIBE_IMPORT = "\nfrom fastweights.step_docstrings import describe_parameters"
DESCRIBE = "\ndescribe_parameters(globals()[name] for name in __all__)\n"
"""Statements of the packages of rules and cells, whose parameters are described by their annotations."""
FOLDERS = (RULES, CELLS, FEATURE_MAPS, NORMALISERS, RATE_ACTIVATIONS, LAYERS, MODELS, TASKS, TOKENIZERS)


def exports(folder: Folder) -> dict[str, list[str]]:
    """The names that a package exports, by the module that they come from."""
    package = f"fastweights.{folder.folder}"
    shared = tuple(f"{package}.{part}" for part in ("_", "kinds.", "sources.", "base.", "wrappers."))
    chosen = {
        str(node.module): [alias.name for alias in node.names]
        for node in parse(folder.path / "__init__.py").body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(shared)
    }
    return chosen | {f"{package}.{file.stem}": parts(file) for file in sorted(folder.path.glob("[a-z]*.py"))}


def parts(file: Path) -> list[str]:
    """The definition that a file is named after; all its functions if there is none."""
    body = parse(file).body
    defined = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assigned = [ast.unparse(node.targets[0]) for node in body if isinstance(node, ast.Assign)]
    named = [name for name in [*defined, *assigned] if matches(name, file.stem)]
    return named[:1] or [name for name in defined if not name.startswith("_")]


def text(folder: Folder) -> str:
    """The `__init__.py` of a folder; `ruff` breaks its long lines and puts them in order."""
    found = exports(folder)
    docstring = ast.get_docstring(parse(folder.path / "__init__.py"), clean=False)
    imports = "\n".join(f"from {module} import {', '.join(names)}" for module, names in found.items())
    listed = "".join(f'    "{name}",\n' for names in found.values() for name in names)
    steps = folder in (RULES, CELLS)
    imports += DESCRIBE_IMPORT if steps else ""
    module = f'"""{docstring}"""\n\n{imports}\n\n__all__ = [\n{listed}]\n'
    return module + (DESCRIBE if steps else "")


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for folder in FOLDERS:
        (folder.path / "__init__.py").write_text(text(folder), encoding="utf-8")
