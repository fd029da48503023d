"""Writes the exports of the packages: the `__init__.py` of every folder exports all parts of the folder.

Run `python docs/exports.py` after a file was added, renamed or removed, or `make generate`, which also writes the
pages. The script keeps the docstring of a package, and its imports from files that begin with an underscore and from
the folders `kinds`, `sources`, `base` and `wrappers`. All other exports follow from the files. A test checks the
packages.
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
"""Statements of the packages of rules and cells. The annotations of their parameters become descriptions."""
FOLDERS = (RULES, CELLS, FEATURE_MAPS, NORMALISERS, RATE_ACTIVATIONS, LAYERS, MODELS, TASKS, TOKENIZERS)


def exports(folder: Folder) -> dict[str, list[str]]:
    """Names that a package exports, by the module that defines them."""
    package = f"fastweights.{folder.folder}"
    shared = tuple(f"{package}.{part}" for part in ("_", "kinds.", "sources.", "base.", "wrappers."))
    chosen = {
        str(node.module): [alias.name for alias in node.names]
        for node in parse(folder.path / "__init__.py").body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(shared)
    }
    return chosen | {f"{package}.{file.stem}": parts(file) for file in sorted(folder.path.glob("[a-z]*.py"))}


def parts(file: Path) -> list[str]:
    """The definition with the name of the file; all public functions if there is none."""
    body = parse(file).body
    defined = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assigned = [ast.unparse(node.targets[0]) for node in body if isinstance(node, ast.Assign)]
    named = [name for name in [*defined, *assigned] if matches(name, file.stem)]
    return named[:1] or [name for name in defined if not name.startswith("_")]


def text(folder: Folder) -> str:
    """Text of the `__init__.py` of a folder. `ruff` formats and sorts its lines."""
    names_of = exports(folder)
    docstring = ast.get_docstring(parse(folder.path / "__init__.py"), clean=False)
    imports = "\n".join(f"from {module} import {', '.join(names)}" for module, names in names_of.items())
    listed = "".join(f'    "{name}",\n' for names in names_of.values() for name in names)
    steps = folder in (RULES, CELLS)
    imports += DESCRIBE_IMPORT if steps else ""
    module = f'"""{docstring}"""\n\n{imports}\n\n__all__ = [\n{listed}]\n'
    return module + (DESCRIBE if steps else "")


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for folder in FOLDERS:
        (folder.path / "__init__.py").write_text(text(folder), encoding="utf-8")
