"""Registry of the parts of the library by name: each file of a folder is a part of that name.

`rules/gated_delta.py` holds the rule `gated_delta`, known as `gated-delta` on the command line. Names and descriptions
are read from the source, so that listing them imports nothing.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar, NamedTuple

from fastweights.core.errors import require_name


class Description(NamedTuple):
    """The docstring of a part, split: its first line, its formula, its source, and the abilities of a memory.

    The formula is the indented block after the first line; empty if there is none.
    """

    summary: str
    formula: str
    source: str
    abilities: tuple[str, ...]


@dataclass(frozen=True)
class Folder:
    """All parts of one kind, which are the files of one folder of the package."""

    kind: str
    folder: str
    suffix: ClassVar[str] = ""
    """Suffix of the names of definitions."""

    @property
    def path(self) -> Path:
        return Path(__file__).parent / self.folder

    def names(self) -> list[str]:
        """Sorted names, with hyphens. A part is a file, or a folder that contains a file of the same name."""
        files = [*self.path.glob("[a-z]*.py"), *self.path.glob("[a-z]*/[a-z]*.py")]
        return sorted(hyphens(file.stem) for file in files if file.parent in (self.path, self.path / file.stem))

    def load(self, name: str) -> Any:
        """Imports and returns a part. An unknown name raises `InputError` with the known ones."""
        require_name(self.kind, hyphens(name), self.names())
        stem = _underscores(name)
        module = import_module(f"fastweights.{self.folder.replace('/', '.')}.{stem}")
        return next(part for key, part in vars(module).items() if matches(key, stem + self.suffix) and callable(part))

    def describe(self, name: str) -> Description:
        """Summary, formula and source of a part."""
        return describe(self.docstring(name))

    def docstring(self, name: str) -> str:
        """The docstring of a part, or of its file if the part has no definition of that name."""
        stem = _underscores(name)
        tree = ast.parse(self._file(stem).read_text(encoding="utf-8"))
        parts = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef))
        part = next((node for node in parts if matches(node.name, stem + self.suffix)), tree)
        return ast.get_docstring(part) or ""

    def docstrings(self, name: str) -> list[str]:
        """The docstrings of a class and of its base classes in this library."""
        path = self._file(_underscores(name))
        return list(_lineage(path, _class_of(path, self.suffix)))

    def _file(self, stem: str) -> Path:
        file = self.path / f"{stem}.py"
        return file if file.exists() else self.path / stem / f"{stem}.py"


@dataclass(frozen=True)
class RecipeFolder(Folder):
    """The recipes: files with a class such as `AgentRecipe` in `agent.py`. Searches for settings have no class."""

    suffix: ClassVar[str] = "Recipe"

    def names(self) -> list[str]:
        return [name for name in super().names() if _class_of(self.path / f"{_underscores(name)}.py", self.suffix)]


@dataclass(frozen=True)
class ConstantFolder(Folder):
    """Constants in the files of a folder and of its sub-folders: `recipes/ba2016/table_1.py` has the part
    `ba2016/table-1`. A file without one of the `constants` has no part."""

    constants: tuple[str, ...]

    def names(self) -> list[str]:
        files = [*self.path.glob("[a-z]*.py"), *self.path.glob("[a-z]*/[a-z]*.py")]
        files = [file for file in files if self._constant(file)]
        return sorted(hyphens(file.relative_to(self.path).with_suffix("").as_posix()) for file in files)

    def load(self, name: str) -> Any:
        require_name(self.kind, hyphens(name), self.names())
        stem = _underscores(name)
        module = import_module(f"fastweights.{self.folder}/{stem}".replace("/", "."))
        return getattr(module, self._constant(self.path / f"{stem}.py"))

    def _constant(self, path: Path) -> str:
        """The first of the constants that a file defines; empty if it defines none."""
        assigned = re.findall(r"^(\w+) = ", path.read_text(encoding="utf-8"), re.MULTILINE)
        return next((name for name in self.constants if name in assigned), "")


def _class_of(path: Path, suffix: str) -> str | None:
    """The class that has the name of its file, followed by a suffix."""
    names = re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return next((name for name in names if matches(name, path.stem + suffix)), None)


def _lineage(path: Path, name: str | None) -> Iterator[str]:
    """Docstrings of a class in a file and of its base classes; none if the file has no such class."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    part = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
    if part is None:
        return
    yield ast.get_docstring(part) or ""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}
    for base in (base.id for base in part.bases if isinstance(base, ast.Name)):
        base_path = Path(__file__).parents[1] / f"{homes[base].replace('.', '/')}.py" if base in homes else path
        if base_path.exists():
            yield from _lineage(base_path, base)


ABILITIES = {
    "accumulate": "adds associations and never removes any",
    "overwrite": "replaces the value that is stored under a key, and keeps the others",
    "fade": "lets all associations decay over time",
    "recur": "computes its writes from its own outputs, so that it can count and track a state",
    "modify itself": "writes the weights that compute its own keys, queries and rates",
}
"""Abilities of memories and their meanings. A docstring lists the abilities after `Can:`."""


def describe(docstring: str) -> Description:
    """Splits a docstring into its first line, its formula, and the paragraphs `Source:` and `Can:`."""
    words = marked(docstring, "Can:").rstrip(".").split(", ")
    summary, *blocks = cleandoc(docstring).split("\n\n")
    formula = dedent(blocks[0]) if blocks and blocks[0].startswith("    ") else ""
    abilities = tuple(word for word in words if word in ABILITIES)
    return Description(" ".join(summary.split()), formula, marked(docstring, "Source:"), abilities)


def marked(docstring: str, mark: str) -> str:
    """The paragraph that begins with a mark, without the mark; empty if there is none."""
    text = "\n".join(line.strip() for line in docstring.splitlines())
    return " ".join(text.partition(f"\n{mark}")[2].partition("\n\n")[0].split())


def hyphens(name: str) -> str:
    """A name in its spelling on the command line."""
    return name.replace("_", "-")


def _underscores(name: str) -> str:
    return name.replace("-", "_")


def matches(attribute: str, stem: str) -> bool:
    """Whether a definition has the name of its file: `DeltaNet` or `delta_net` in `delta_net.py`."""
    return attribute.replace("_", "").lower() == stem.replace("_", "").lower()


RULES = Folder("rule", "rules")
CELLS = Folder("cell", "cells")
FEATURE_MAPS = Folder("feature map", "feature_maps")
NORMALISERS = Folder("normaliser", "normalisers")
RATE_ACTIVATIONS = Folder("rate activation", "rate_activations")
BACKENDS = Folder("backend", "backends")
LAYERS = Folder("layer", "layers")
TASKS = Folder("task", "tasks")
TOKENIZERS = Folder("tokenizer", "tokenizers")
RECIPES = RecipeFolder("recipe", "recipes")
MODELS = Folder("model", "models")
SETTINGS = Folder("kind of settings", "training/settings")
NORMS = Folder("norm", "models/residuals")
POSITIONS = Folder("positions", "models/positions")
VISION_ENCODERS = Folder("vision encoder", "models/vision")
EXPERIMENTS = ConstantFolder("experiment", "recipes", ("EXPERIMENT",))
"""The experiments that `fastweights reproduce` runs."""
TABLES = ConstantFolder("table", "recipes", ("EXPERIMENT", "TABLE"))
"""The table of a run in a report. A recipe for the user's own data has a `TABLE`, and no experiment to reproduce."""
COMMANDS = Folder("command", "commands")
DATA_SETS = ConstantFolder("data set", "tasks/data_sets", ("DATA_SET",))
"""The data sets of `fastweights data`."""

KINDS: dict[str, tuple[Folder, ...]] = {
    "rules": (RULES,),
    "cells": (CELLS, RULES),
    "feature-maps": (FEATURE_MAPS,),
    "normalisers": (NORMALISERS,),
    "rate-activations": (RATE_ACTIVATIONS,),
    "layers": (LAYERS, CELLS, RULES),
    "norms": (NORMS,),
    "positions": (POSITIONS,),
    "vision-encoders": (VISION_ENCODERS,),
    "backends": (BACKENDS,),
    "tasks": (TASKS,),
    "tokenizers": (TOKENIZERS,),
    "recipes": (RECIPES,),
    "experiments": (EXPERIMENTS,),
}
"""Folders of the names of a kind; the first folder that has a name wins. Every rule is also a cell, and every cell a
layer."""


def names(kind: str) -> list[str]:
    """All names of a kind, such as "layers"."""
    return sorted({name for folder in KINDS[kind] for name in folder.names()})


def descriptions(kind: str) -> dict[str, Description]:
    """The descriptions of all parts of a kind, by name."""
    homes = {name: folder for folder in reversed(KINDS[kind]) for name in folder.names()}
    return {name: homes[name].describe(name) for name in sorted(homes)}
